"""Replay of rewritings from the record of applied rules in a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.prove.cases import rule_of
from unity_dsl.rules.graph_identity import Identities
from unity_dsl.rules.graph_match import matches
from unity_dsl.rules.replay import applied_in_order
from unity_dsl.rules.rewrite import rewrite

from .models import substitution
from .side_models import build

MERGING = """
rule joined(x: [b.., m], y: [n, m], z: [k, m])
  r1 = linear(x, concat(y, z; dim=0))
  linear(x, y), linear(x, z) => slice(r1; dim=-1, start=0, stop=n), slice(r1; dim=-1, start=n, stop=n + k)
"""

SIBLINGS = """
model siblings[rows = 4]
  input x: f32[rows, 3]
  input t: f32[rows, 2]
  weight u: f32[2, 3] ~ normal(1)
  weight v: f32[2, 3] ~ normal(1)
  weight w: f32[2, 3] ~ normal(1)
  a = linear(x, u)
  b = linear(x, v)
  c = linear(x, w)
  loss mse(a * b * c, t)
"""


def test_every_match_is_applied_again() -> None:
    """Several matches may start at one place: every pair of siblings, in either order."""
    rule, model, identities = substitution(rule_of(MERGING)), build(SIBLINGS), Identities()
    found = list(matches(rule, model))
    assert len(found) == 6 and len({match.place for match in found}) == 3
    for match in found:
        once = rewrite(model, match)
        again = applied_in_order(model, [match.applied(None)], {rule.rule.name: rule})
        assert not isinstance(once, str) and again is not None
        assert identities.of(once) == identities.of(again)
        assert [node.arguments for node in once.graph.nodes()] == [node.arguments for node in again.graph.nodes()]


@pytest.mark.parametrize("place", ["nowhere", "loss"])
def test_a_rule_that_does_not_fit_makes_nothing(place: str) -> None:
    rule, model = substitution(rule_of(MERGING)), build(SIBLINGS)
    (first, *_) = matches(rule, model)
    used = first.applied(None)
    assert applied_in_order(model, [replace(used, place=place)], {rule.rule.name: rule}) is None
    assert applied_in_order(model, [used], {}) is None
