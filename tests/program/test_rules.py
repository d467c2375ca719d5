"""Programs of rewritten models equal the original model, and name the rules that made them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.emit.plan_file import load_plan_file
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.syntax.diagnostic import InputError

from .conftest import Compile

FUSE = """
## One product with all three weights in place of three: x is read once.
rule fuse_projections(x: [b, i], q: [o, i], k: [p, i], v: [r, i])
  y = linear(x, concat(concat(q, k; dim=0), v; dim=0))
  first = slice(y; dim=1, start=0, stop=o)
  second = slice(y; dim=1, start=o, stop=o + p)
  third = slice(y; dim=1, start=o + p, stop=o + p + r)
  linear(x, q), linear(x, k), linear(x, v) => first, second, third

## Costs an operator more.
rule double(x: [b.., c])
  softmax(x) => softmax(x + 1)
"""

ATTENTION = """model attention[s = 64, d = 2048, e = 4]
  input x: f32[s, d]
  input target: f32[s, e]
  weight wq: f32[e, d] ~ normal(0.02)
  weight wk: f32[e, d] ~ normal(0.02)
  weight wv: f32[e, d] ~ normal(0.02)
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  p = softmax(matmul(q, k[t, e] -> [e, t]))
  loss mse(matmul(p, v), target)
  output p
"""

LOW_RANK = """
rule low_rank(x: [b.., i], w: [h, i], v: [o, h])
  linear(x, matmul(v, w)) => linear(linear(x, w), v)

rule relu_twice(x: [b..])
  relu(relu(x)) => relu(x)
"""

ADAPTED = """model adapted[b = 32, d = 256, r = 2, layers = 3]
  input x: f32[b, d]
  input target: f32[b, d]
  weight shared: f32[r, d] ~ normal(0.1)
  h = dropout(x + relu(relu(x)); p=0.2)
  repeat layers as layer
    weight up: f32[d, r] ~ normal(0.1)
    weight bias: f32[d] ~ zeros
    delta = matmul(up, shared)
    h = h + dropout(relu(relu(linear(h, delta) + bias)); p=0.2)
  loss mse(linear(h, shared), linear(target, shared))
  output h
"""

ZEROS = """
rule zeros(x: [b..])
  scale(relu(x); factor=0) => scale(x; factor=0)
"""

MASKED = """model masked[s = 8]
  input x: f32[s, s]
  input target: f32[s, s]
  weight w: f32[s, s] ~ normal(1)
  a = scale(relu(causal_mask(matmul(x, w))); factor=0)
  b = scale(relu(matmul(x, w)); factor=0)
  loss mse(a + b + linear(x, w), target)
  output a
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "laws.rules"
    path.write_text(FUSE)
    return path


@pytest.mark.parametrize("ranks", [1, 2])
def test_projections_that_read_one_tensor(ranks: int, rules: Path, compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(ATTENTION, devices=ranks, rules=[rules])
    plan = json.loads((out / "plan.json").read_text())
    assert plan["rules"] == [{"rule": "fuse_projections", "place": "q", "replaced": ["q", "k", "v"], "line": 7}]
    assert plan["models_considered"] > 1
    text = (out / "model.py").read_text()
    # A concatenation of all three weights, the product with it, and three slices of the product.
    assert text.count(", by rule ") == text.count(", by rule fuse_projections") == 5
    # The replaced operator keeps its name and line. New operators are named after it.
    above, split, _ = re.sub(r"\n *# ", " ", text).partition(" q, k, v = torch.split(")
    assert split
    for line in (7, 8, 9):
        assert re.search(rf"model1.udl:{line} +slice[^;]*, by rule fuse_projections", above.splitlines()[-2])
    assert "q_linear = F.linear(" in text
    report = check(out, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_repeat_with_random_numbers(ranks: int, tmp_path: Path, compile_program: Compile, pool: RankPool) -> None:
    """Weights inside and outside of the body, and dropout around the rewritten part: the same
    numbers as without rules.
    """
    path = tmp_path / "adapted.rules"
    path.write_text(LOW_RANK)
    out = compile_program(ADAPTED, devices=ranks, rules=[path], shipped_rules=False)
    plan = json.loads((out / "plan.json").read_text())
    assert {used["rule"] for used in plan["rules"]} == {"low_rank", "relu_twice"}
    assert any(used["place"].startswith("layer.") for used in plan["rules"])
    report = check(out, pool=pool)
    assert report.ok, report


def test_a_rule_is_not_used_on_masked_scores(tmp_path: Path, compile_program: Compile, pool: RankPool) -> None:
    """The rule is proved for finite elements only. On masked scores 0 times minus infinity has no value, so the loss
    was NaN.
    """
    path = tmp_path / "zeros.rules"
    path.write_text(ZEROS)
    out = compile_program(MASKED, devices=1, rules=[path])
    used = json.loads((out / "plan.json").read_text())["rules"]
    assert used == [{"rule": "zeros", "place": "b", "replaced": ["b"], "line": 6}]
    report = check(out, pool=pool)
    assert report.ok, report


def test_another_number_of_ranks_uses_the_rules_again(rules: Path, compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(ATTENTION, devices=1, rules=[rules])
    (source,) = load_plan_file(out).sources.rules
    assert (source.name, source.text) == ("laws.rules", FUSE)
    report = check(out, ranks=2, pool=pool)
    assert report.ok and report.recompiled, report


def test_a_rule_that_does_not_pay_is_not_used(rules: Path, compile_program: Compile) -> None:
    """On narrow inputs the copies cost more than reading the inputs three times."""
    out = compile_program(ATTENTION.replace("d = 2048", "d = 8"), rules=[rules])
    plan = json.loads((out / "plan.json").read_text())
    assert plan["rules"] == [] and plan["models_considered"] > 1
    assert ", by rule " not in (out / "model.py").read_text()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rule wrong(x: [b, c])\n  relu(x) => x\n", "the rule `wrong` is false"),
        ("rule wrong(x: [b, c])\n  gelu(x) => gelu_tanh(x)\n", "the rule `wrong` is false"),
    ],
)
def test_a_rule_that_is_not_proved_is_refused(text: str, told: str, tmp_path: Path, compile_program: Compile) -> None:
    path = tmp_path / "wrong.rules"
    path.write_text(FUSE + "\n" + text)
    (tmp_path / "model.udl").write_text(ATTENTION)
    assert run([str(tmp_path / "model.udl"), "-o", str(tmp_path / "out"), "--rules", str(path)]) == 2
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError) as error:
        compile_program(ATTENTION, rules=[path])
    assert error.value.diagnostic.code == "E542"
    assert told in error.value.diagnostic.message
    assert error.value.diagnostic.span is not None and error.value.diagnostic.span.source.name == str(path)


def test_two_rules_of_one_name_are_refused(rules: Path, tmp_path: Path, compile_program: Compile) -> None:
    other = tmp_path / "other.rules"
    other.write_text("rule double(x: [b..])\n  relu(x) => relu(relu(x))\n")
    with pytest.raises(InputError) as error:
        compile_program(ATTENTION, rules=[rules, other])
    assert error.value.diagnostic.code == "E024"
