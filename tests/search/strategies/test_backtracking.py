"""Substitutions for one device: TASO takes improvements only, MetaFlow detours as well. Rules of plans are applied
again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.graph.graph import Model
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.shipped_rules import ShippedRules, shipped_sources
from unity_dsl.search.model_variants.rewritten_model import Variant
from unity_dsl.search.model_variants.variant_enumeration import SingleDevice
from unity_dsl.search.strategies import STRATEGIES
from unity_dsl.search.strategies.backtracking import Limits, backtrack
from unity_dsl.search.strategies.strategy import Space
from unity_dsl.search.strategies.taso import LIMITS
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

from ..conftest import Build
from .conftest import MakeSpace

BIASED = """\
model biased[b = 64, d = 64, h = 256]
  input x: f32[b, d]
  input target: f32[b, d]
  weight up: f32[h, d] ~ normal(0.1)
  weight up_bias: f32[h] ~ zeros
  weight down: f32[d, h] ~ normal(0.1)
  weight down_bias: f32[d] ~ zeros
  hidden = relu(linear(x, up) + up_bias)
  y = linear(hidden, down) + down_bias
  loss mse(y, target)
"""
DETOUR = """
rule first(x: [n, m])
  neg(neg(x)) => scale(x; factor=1) + scale(x; factor=0)
rule second(x: [n, m])
  scale(x; factor=1) + scale(x; factor=0) => relu(relu(x))
"""
NEGATED = """
model negated[b = 4096, d = 4096]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.1)
  y = neg(neg(linear(x, w)))
  loss mse(y, target)
"""


@pytest.fixture(scope="module")
def shipped(library: Library) -> ShippedRules:
    return ShippedRules(shipped_sources(), library)


def with_rules(space: Space, rules: tuple[RuleDecl, ...]) -> Space:
    return replace(space, rules=rules)


def alone(model: Model, library: Library) -> float:
    return SingleDevice(load_machine("dgx-a100"), library).seconds(model)


@pytest.mark.parametrize("name", ["taso", "metaflow", "taso_then_flexflow"])
def test_operators_are_fused_where_that_is_cheaper(
    name: str, build: Build, library: Library, space: MakeSpace, shipped: ShippedRules
) -> None:
    model = build(BIASED)
    found = with_rules(space(model, name, (2,)), shipped.fitting(model))
    algorithm = STRATEGIES[name].algorithm
    assert algorithm is not None
    chosen = algorithm(found)
    assert alone(chosen.variant.model, library) < alone(model, library)
    assert {rule.rule for rule in chosen.variant.rules} >= {"linear_with_bias"}
    assert next(chosen.graph.nodes()).node.instance.name in ("linear_bias", "linear_bias_relu")
    assert algorithm(found).graph == chosen.graph


def test_a_threshold_allows_detours(build: Build, library: Library) -> None:
    """The second rule matches the result of the first, which is more expensive than the original."""
    model, rules = build(NEGATED), parse_rules(Source("detour.rules", DETOUR)).rules

    def cost(changed: Model) -> float:
        names = {node.instance.name for node in changed.graph.nodes()}
        return 10.0 if "neg" in names else 10.5 if "scale" in names else 9.0

    strict, whole = backtrack(Variant(model), rules, library, cost, LIMITS)
    assert not strict.rules and whole
    relaxed, _ = backtrack(Variant(model), rules, library, cost, Limits(threshold=1.1, budget=10))
    assert [rule.rule for rule in relaxed.rules] == ["first", "second"]


def test_limits_are_told(build: Build, library: Library, shipped: ShippedRules) -> None:
    model = build(BIASED)
    rules = shipped.fitting(model)
    best, whole = backtrack(Variant(model), rules, library, lambda changed: alone(changed, library), Limits(1.0, 1))
    assert len(best.rules) == 1 and not whole


def test_without_rules_nothing_is_changed(build: Build, space: MakeSpace) -> None:
    model = build(BIASED)
    algorithm = STRATEGIES["taso"].algorithm
    assert algorithm is not None
    assert algorithm(space(model, "taso", (2,))).variant.model is model


def test_the_program_is_planned_again_from_its_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`trace` uses the plan in plan.json, including its rules, and so does `check` on other ranks."""
    monkeypatch.chdir(tmp_path)
    Path("model.udl").write_text(BIASED)
    assert run(["model.udl", "-o", "out", "-d", "2", "-m", "dgx-a100", "-s", "taso"]) == 0
    assert "linear_with_bias" in Path("out/plan.json").read_text()
    assert run(["trace", "out"]) == 0
    assert run(["check", "out"]) == 0
    assert run(["model.udl", "-o", "out2", "-d", "2", "-m", "dgx-a100", "-s", "taso", "--no-rules"]) == 0
    assert '"rules": []' in Path("out2/plan.json").read_text()
