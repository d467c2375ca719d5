"""The search for a multiplier, over plans of which seconds and bytes are all that is known."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest

from unity_dsl.graph.plan import Cost, Memory, Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.memory_limit.multiplier_search import Attempt, Tried, try_multipliers
from unity_dsl.search.plan_search import search

from ..conftest import TWO, Build

MODEL = """
model m[b = 4]
  input x: f32[b, 4]
  input target: f32[b, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  y = linear(x, w)
  loss mse(y, target)
"""


@pytest.mark.parametrize("in_one_step", [False, True])
def test_the_best_plan_is_within_its_gap(in_one_step: bool, library: Library, build: Build) -> None:
    """Of random points the cheapest that fits costs at most what is found, and at least the bound; every multiplier
    gives a point of the lower hull.
    """
    some = search(build(MODEL), TWO, load_machine("dgx-a100"), library)
    found_best = 0
    for seed in range(300):
        rng = Random(seed)
        points = [(rng.uniform(1, 10), rng.uniform(1, 100)) for _ in range(rng.randint(2, 40))]
        cheapest = min(points)
        least = min(count for _, count in points)
        if cheapest[1] == least:
            continue
        limit = rng.uniform(least, cheapest[1] * 0.999)
        if limit < least:
            continue

        def planned(point: tuple[float, float]) -> Plan:
            return replace(some, cost=Cost(compute=point[0], memory=Memory(parameters=point[1])))

        def attempt(multiplier: float, points: list[tuple[float, float]] = points, limit: float = limit) -> Attempt:
            best = min(points, key=lambda point: point[0] + multiplier * point[1])
            bound = best[0] + multiplier * (best[1] - limit)
            return Attempt(multiplier, planned(best), best[1], {some.mesh: bound})

        first = Attempt(0.0, planned(cheapest), cheapest[1], {some.mesh: cheapest[0]})
        tried = Tried(limit, [first, Attempt(inf, planned(cheapest), cheapest[1])])
        try_multipliers(tried, attempt, 40, in_one_step=in_one_step)
        optimum = min(seconds for seconds, count in points if count <= limit)
        assert tried.best is not None, f"seed {seed}"
        assert tried.best.seconds >= optimum, f"seed {seed}"
        assert tried.best.seconds * (1 - tried.gap) <= optimum * (1 + 1e-9), f"seed {seed}"
        found_best += tried.best.seconds == optimum
    print(f"the cheapest was found in {found_best} of at most 300 cases")
    assert found_best > 100


def test_where_nothing_fits_two_multipliers_are_tried_in_one_step(library: Library, build: Build) -> None:
    """The first, and the one at which the steps would end: none between is of use."""
    some = search(build(MODEL), TWO, load_machine("dgx-a100"), library)
    plan = replace(some, cost=Cost(compute=1.0, memory=Memory(parameters=10.0)))

    def asked(in_one_step: bool) -> list[float]:
        made: list[float] = []

        def attempt(multiplier: float) -> Attempt:
            made.append(multiplier)
            return Attempt(multiplier, plan, 10.0)

        given = [Attempt(0.0, plan, 10.0), Attempt(inf, plan, 10.0)]
        try_multipliers(Tried(5.0, given), attempt, 5, in_one_step=in_one_step)
        return made

    steps = asked(False)
    assert len(steps) == 5 and steps == sorted(steps)
    assert asked(True) == pytest.approx([steps[0], steps[-1]])
