"""The necessary condition for a rule to match a graph: every graph with a match meets it, and some others do not."""

from __future__ import annotations

import pytest

from tests.prove.cases import library, rule_of, rules_of
from unity_dsl.graph.graph import Model, Node
from unity_dsl.rules.egraph.prospect import Prospect, Skeleton, left_skeleton, skeleton_of
from unity_dsl.rules.egraph.saturation import saturate
from unity_dsl.rules.graph_match import matches
from unity_dsl.rules.substitution import Substitution, substitution_of
from unity_dsl.syntax.diagnostic import InputError

from ...sampling import of_the_day
from ..models import LAWS, model_of
from ..side_models import build

USABLE = [found for rule in rules_of("proved") if isinstance(found := substitution_of(rule, library()), Substitution)]


def skeletons(model: Model) -> list[Skeleton]:
    return [skeleton_of([step for step in model.graph.steps if isinstance(step, Node)])]


@pytest.mark.parametrize("found", of_the_day(USABLE, 24), ids=lambda found: found.rule.name)
def test_a_model_that_a_rule_fits_has_what_its_left_side_needs(found: Substitution) -> None:
    try:
        model = model_of(found, dict.fromkeys(found.groups, 1), 0)
    except InputError as error:  # step functions give no weight a gradient, so the model is refused
        assert error.diagnostic.code == "E224" and "steps" in found.rule.name
        return
    needed = left_skeleton(found.rule, found.library)
    assert any(True for _ in matches(found, model))
    assert all(needed.within(own) for own in skeletons(model))


def test_no_law_that_fits_a_model_is_left_out() -> None:
    """Tries every law on every model made of a law's left side."""
    laws = [found for text in LAWS if isinstance(found := substitution_of(rule_of(text), library()), Substitution)]
    left_out = 0
    for other in laws:
        model = model_of(other, dict.fromkeys(other.groups, 1), 0)
        for law in laws:
            possible = left_skeleton(law.rule, library()).within(*skeletons(model))
            assert possible or not any(True for _ in matches(law, model)), f"{law.rule.name} in {other.rule.name}"
            left_out += not possible
    assert left_out > len(laws), "some are seen not to fit"


@pytest.mark.parametrize(
    ("rule", "operators", "joins"),
    [
        ("rule r(x: [b..])\n  relu(tanh(x)) => tanh(x)", {"relu", "tanh"}, {("relu", "tanh")}),
        ("rule r(x: [b..])\n  n = tanh(x)\n  relu(n), n + n => n, n", {"relu", "tanh", "add"}, None),
        # A view that an operator can take in its call need not be a separate operator.
        ("rule r(x: [m, n])\n  relu(x[m, n] -> [n, m]) => x", {"relu"}, set()),
        ("rule r(x: [m, n])\n  relu(x)[m, n] -> [n, m] => x", {"relu", "rearrange"}, {("rearrange", "relu")}),
    ],
)
def test_the_operators_of_a_left_side(rule: str, operators: set[str], joins: set[tuple[str, str]] | None) -> None:
    found = left_skeleton(rule_of(rule), library())
    assert found.operators == operators
    assert found.joins == ({("relu", "tanh"), ("add", "tanh")} if joins is None else joins)


def test_what_leaves_a_value_as_it_is_joins_its_neighbours() -> None:
    model = build(
        """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  loss mse(relu(dropout(tanh(linear(x, w)); p=0)), target)
"""
    )
    assert ("relu", "tanh") in skeletons(model)[0].joins


def test_a_value_is_not_made_of_itself() -> None:
    """`relu(x) => relu(relu(x))` is useless to an extraction: the operator would read its own result."""
    model = build(
        """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  loss mse(relu(linear(x, w)), target)
"""
    )
    idle = rule_of(next(text for text in LAWS if "rule idle(" in text))
    found = saturate(model, [Prospect(idle, library())], library())
    (egraph,) = found.graphs
    assert [enode.node for enode in egraph.enodes] == list(model.graph.steps)
    assert list(found.rules) == ["idle"]
