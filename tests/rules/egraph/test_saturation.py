"""Saturated e-graphs: their contents, merged operators, and limits."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.prove.cases import library, rule_of
from unity_dsl.graph.graph import Model
from unity_dsl.rules.egraph.equality_graph import EqualityGraph
from unity_dsl.rules.egraph.saturation import SIBLINGS, Saturated, saturate
from unity_dsl.rules.substitution import Substitution, substitution_of

from ..models import LAWS
from ..side_models import build

SIBLING_LINEARS = """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
{weights}
  loss mse({sum}, target)
"""


def rule(name: str) -> Substitution:
    text = next(text for text in LAWS if f"rule {name}(" in text)
    found = substitution_of(rule_of(text), library())
    assert isinstance(found, Substitution)
    return found


def saturated(model: Model, *names: str) -> Saturated:
    return saturate(model, [rule(name) for name in names], library())


def merged(egraph: EqualityGraph) -> Counter[int]:
    """How many `linear` operators have joined weights of so many siblings (4 columns each)."""
    made = [enode.node for enode in egraph.enodes if enode.applied and enode.node.instance.name == "linear"]
    return Counter(node.results[0].shape[1] // 4 for node in made)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_every_set_of_siblings_is_merged_in_one_way(count: int) -> None:
    weights = "\n".join(f"  weight w{number}: f32[4, 4] ~ normal(0.1)" for number in range(count))
    total = " + ".join(f"linear(x, w{number})" for number in range(count))
    found = saturated(build(SIBLING_LINEARS.format(weights=weights, sum=total)), "share")
    sizes = merged(found.graphs[0])
    for size in range(2, min(count, SIBLINGS) + 1):
        binomial = 1
        for number in range(size):
            binomial = binomial * (count - number) // (number + 1)
        assert sizes[size] == binomial, f"sets of {size} of {count}"
    assert not any(size > SIBLINGS for size in sizes)


def test_equal_operators_on_equal_values_are_one() -> None:
    text = """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  y = relu(linear(x, w))
  loss mse(relu(y), target)
"""
    found = saturated(build(text), "idle")
    (egraph,) = found.graphs
    assert found.limits == ()
    relus = [enode.node for enode in egraph.enodes if enode.node.instance.name == "relu"]
    assert len(relus) <= 2, "relu of relu is relu, and no tower of them"


def test_a_graph_without_matches_is_as_it_was() -> None:
    text = """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  loss mse(linear(x, w), target)
"""
    model = build(text)
    (egraph,) = saturated(model, "associate").graphs
    assert [enode.node for enode in egraph.enodes] == list(model.graph.steps)


def test_the_bound_on_operators_is_told() -> None:
    weights = "\n".join(f"  weight w{number}: f32[4, 4] ~ normal(0.1)" for number in range(6))
    total = " + ".join(f"linear(x, w{number})" for number in range(6))
    model = build(SIBLING_LINEARS.format(weights=weights, sum=total))
    found = saturate(model, [rule("share")], library(), largest=20)
    assert any("20 operators" in limit for limit in found.limits)
    assert len(found.graphs[0].enodes) <= 30


def test_rules_are_accepted_when_they_first_fit() -> None:
    asked: list[str] = []
    text = """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  weight v: f32[4, 4] ~ normal(0.1)
  loss mse(linear(linear(x, w), v), target)
"""
    rules = [rule("associate"), rule("distribute")]
    saturate(build(text), rules, library(), accept=asked.append)
    assert set(asked) == {"associate"}
