"""Programs with operators fused by the shipped rules: equal to the original model, and fused where that pays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.emit.plan_file import load_plan_file
from unity_dsl.emit.program_check import check, recompile
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.resources import folder

from .conftest import Compile

TWO_LAYERS = """model two_layers[b = 32, d = 64, h = 128]
  input x: f32[b, d]
  input target: f32[b, d]
  weight up: f32[h, d] ~ normal(0.1)
  weight up_bias: f32[h] ~ normal(0.1)
  weight down: f32[d, h] ~ normal(0.1)
  weight down_bias: f32[d] ~ normal(0.1)
  a = relu(linear(x, up) + up_bias)
  y = down_bias + linear(a, down)
  loss mse(y, target)
  output y
"""

ATTENTION = """model attention[b = 2, heads = 4, s = 8, width = 8, p = 0]
  input x: f32[b, s, heads * width]
  input target: f32[b, s, heads * width]
  weight qkv: f32[3, heads, width, heads * width] ~ normal(0.3)
  q, k, v = split(project(x, qkv); dim=2, parts=3)
  scores = matmul(root_scale(q[b, s, 1, h, e] -> [b, h, s, e]), k[b, t, 1, h, e] -> [b, h, e, t])
  mixed = matmul(dropout(softmax(MASKED); p=p), v[b, t, 1, h, e] -> [b, h, t, e])
  y = mixed[b, h, s, e] -> [b, s, (h e)]
  loss mse(y, target)
  output y
"""


def applied(out: Path) -> list[tuple[str, str]]:
    return [(used["rule"], used["place"]) for used in json.loads((out / "plan.json").read_text())["rules"]]


def seconds(out: Path) -> float:
    found: dict[str, Any] = json.loads((out / "plan.json").read_text())
    return float(found["cost"]["seconds"])


@pytest.mark.parametrize(("ranks", "strategy"), [(1, "auto"), (2, "data_parallel")])
def test_a_bias_is_added_by_linear(ranks: int, strategy: str, compile_program: Compile, pool: RankPool) -> None:
    """Fusion works for both orders of the sum, and costs less than no fusion."""
    out = compile_program(TWO_LAYERS, devices=ranks, strategy=strategy)
    assert [rule for rule, _ in applied(out)] == ["linear_with_bias"] * 2
    assert (out / "model.py").read_text().count("by rule linear_with_bias") == 2
    without = compile_program(TWO_LAYERS, devices=ranks, strategy=strategy, shipped_rules=False)
    assert seconds(out) < seconds(without) and applied(without) == []
    report = check(out, pool=pool)
    assert report.ok, report


def test_a_bias_behind_a_sum_over_the_devices_is_added_there(compile_program: Compile, pool: RankPool) -> None:
    """Divided by columns, then by rows: each device has only a partial sum of the second `linear`."""
    out = compile_program(TWO_LAYERS, devices=2, pins=["up=S0", "down=S1", "a=S1"])
    assert applied(out) == [("linear_with_bias", "add_1")]
    report = check(out, pool=pool)
    assert report.ok, report


NORMS = """model norms[b = 8, d = 16]
  input x: f32[b, d]
  input target: f32[b, d]
  weight g: f32[d] ~ normal(0.3)
  weight h: f32[d] ~ normal(0.3)
  weight w: f32[d, d] ~ normal(0.3)
  weight v: f32[d, d] ~ normal(0.3)
  r = x + linear(rms_norm(x, g), w)
  u = r + linear(layer_norm(r, g, h), v)
  s = u + linear(rms_norm(u, g), w)
  y = s + layer_norm(s, g, h)
  loss mse(y, target)
  output y
"""
ACTIVATIONS = """model activations[b = 8, d = 16, heads = 2]
  input x: f32[b, d]
  input target: f32[b, heads, d / heads]
  weight w: f32[d, d] ~ normal(0.3)
  weight bias: f32[d] ~ normal(0.3)
  weight split: f32[heads, d / heads, d] ~ normal(0.3)
  weight shift: f32[heads, d / heads] ~ normal(0.3)
  a = relu(linear(x, w) + bias)
  c = gelu(linear(a, w) + bias)
  e = gelu_tanh(linear(c, w) + bias)
  y = project(e, split) + shift
  loss mse(y, target)
  output y
"""


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (NORMS, {"linear_of_layer_norm", "linear_of_rms_norm", "layer_norm_of_sum", "rms_norm_of_sum"}),
        (ACTIVATIONS, {"relu_of_linear", "gelu_of_linear", "gelu_tanh_of_linear", "project_with_bias"}),
    ],
    ids=["norms", "activations"],
)
def test_every_fused_operator_in_plans_drawn_by_chance(
    text: str, rules: set[str], compile_program: Compile, pool: RankPool
) -> None:
    """Fused operators without a native call, which no search chooses, on two ranks: draws plans until each rule was
    used.
    """
    missing = set(rules)
    for seed in range(24):
        out = compile_program(text, devices=2, strategy=f"random:{seed}")
        used = {rule for rule, _ in applied(out)} & missing
        if used:
            report = check(out, pool=pool)
            assert report.ok, (seed, report)
        missing -= used
        if not missing:
            return
    raise AssertionError(f"never used: {missing}")


CLASSES = """model classes[n = 16, d = 8, c = 12]
  input x: f32[n, d]
  input target: int<c>[n]
  weight w: f32[c, d] ~ normal(0.5)
  logits = linear(x, w)
  loss LOSS
"""


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("loss", "rule"),
    [
        ("nll(log_softmax(logits), target)", "nll_of_log_softmax"),
        ("nll(log(softmax(logits)), target)", "nll_of_log_of_softmax"),
        (
            "scale(reduce_mean(reduce_sum((log_softmax(logits) * one_hot(target))[n, c] -> [n])[n] -> []); factor=-1)",
            "log_softmax_at_one_hot",
        ),
    ],
)
def test_a_likelihood_that_is_written_out_is_cross_entropy(
    loss: str, rule: str, ranks: int, compile_program: Compile, pool: RankPool
) -> None:
    out = compile_program(CLASSES.replace("LOSS", loss), devices=ranks)
    assert [name for name, _ in applied(out)] == [rule]
    text = (out / "model.py").read_text()
    assert "F.cross_entropy(" in text and "log_softmax(" not in text
    report = check(out, pool=pool)
    assert report.ok, report


def test_what_is_pinned_is_not_fused_away(compile_program: Compile) -> None:
    out = compile_program(TWO_LAYERS, devices=2, pins=["linear_1=S0"])
    assert [place for _, place in applied(out)] == ["y"]


@pytest.mark.a_day(5)
@pytest.mark.parametrize(
    ("masked", "rule", "call"),
    [
        ("scores", "attention_of_products", "F.scaled_dot_product_attention("),
        ("causal_mask(scores)", "causal_attention_of_products", "is_causal=True"),
        ("padding_mask(scores, mask)", "padded_attention_of_products", "penalty"),
    ],
)
@pytest.mark.parametrize(("ranks", "strategy"), [(1, "auto"), (2, "auto"), (4, "random:3"), (4, "random:5")])
def test_attention_that_is_written_out(
    masked: str, rule: str, call: str, ranks: int, strategy: str, compile_program: Compile, pool: RankPool
) -> None:
    text = ATTENTION.replace("MASKED", masked)
    if ", mask" in masked:
        text = text.replace("  weight", "  input mask: int<2>[b, s]\n  weight", 1)
    out = compile_program(text, devices=ranks, strategy=strategy)
    assert strategy != "auto" or [name for name, _ in applied(out)] == [rule]
    assert strategy != "auto" or call in (out / "model.py").read_text()
    report = check(out, pool=pool)
    assert report.ok, report


def test_a_rule_that_is_forbidden_is_not_used(compile_program: Compile, tmp_path: Path) -> None:
    """Forbids a shipped rule and a rule of a file, also when the program is compiled again."""
    model = TWO_LAYERS.replace("relu(linear(x, up) + up_bias)", "relu(relu(linear(x, up) + up_bias))")
    laws = tmp_path / "laws.rules"
    laws.write_text("rule relu_twice(x: [b..])\n  relu(relu(x)) => relu(x)\n")
    used = {rule for rule, _ in applied(compile_program(model, rules=[laws]))}
    assert used == {"relu_twice", "linear_with_bias"}
    for forbidden in used:
        out = compile_program(model, rules=[laws], forbidden=[forbidden, "relu_idempotent"])
        assert {rule for rule, _ in applied(out)} == used - {forbidden}
        again = tmp_path / f"without_{forbidden}"
        recompile(load_plan_file(out), again, 2, "auto", ())
        text = (again / "model.py").read_text()
        assert ("by rule linear_with_bias" in text) == (forbidden != "linear_with_bias")
        assert text.count(".relu_()") + text.count("torch.relu(") == (2 if forbidden == "relu_twice" else 1)


def test_attention_with_dropout_is_not_fused(compile_program: Compile) -> None:
    """The native call draws other random numbers, which no rule may replace."""
    out = compile_program(ATTENTION.replace("MASKED", "causal_mask(scores)"), settings={"p": 0.1})
    assert applied(out) == []


def test_another_number_of_ranks_fuses_again(compile_program: Compile, pool: RankPool) -> None:
    for shipped in (True, False):
        report = check(compile_program(TWO_LAYERS, shipped_rules=shipped), ranks=2, pool=pool)
        assert report.ok and report.recompiled, report


def test_a_repeat_is_fused_in_all_its_iterations_and_takes_fewer_sizes(compile_program: Compile) -> None:
    """Outside training, a program with fused operators takes smaller batches, like a program without them."""
    gpt2 = folder("examples") / "gpt2.udl"
    out = compile_program(gpt2, preset="small", settings={"dropout": 0})
    assert applied(out) == [
        ("project_with_bias", "layer.attn.add_1"),
        ("causal_attention_of_products", "layer.attn.mixed"),
        ("linear_with_bias", "layer.attn"),
        ("linear_with_bias", "layer.mlp.add_1"),
        ("linear_with_bias", "layer.mlp"),
    ]
    text = (out / "model.py").read_text()
    assert "torch.softmax" not in text and 'sizes=("b", None)' in text
