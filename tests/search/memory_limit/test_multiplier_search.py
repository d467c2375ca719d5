"""The search for a multiplier, over plans of which only seconds and bytes are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, sqrt
from random import Random

import pytest

from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.plan import Cost, Memory, Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.constants import COUNTED_FITS, LEAST_PRICE, PRUNED_LIMITED
from unity_dsl.search.memory_limit.multiplier_search import Attempt, Bounds, Tried, scout_multipliers, try_multipliers
from unity_dsl.search.plan_notes import describe_gap
from unity_dsl.search.plan_search import search

from ..conftest import TWO, Build

ONE_MORE = Mesh((MeshAxis("x", 3),))
MODEL = """
model m[b = 4]
  input x: f32[b, 4]
  input target: f32[b, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  y = linear(x, w)
  loss mse(y, target)
"""


@pytest.mark.parametrize("search_for", [try_multipliers, scout_multipliers])
@pytest.mark.parametrize("exhausts", [False, True])
def test_the_best_plan_is_within_its_gap(
    search_for: Callable[..., None], exhausts: bool, library: Library, build: Build
) -> None:
    """On random points, the cheapest that fits costs at most what is found, and at least the bound. Every multiplier
    gives a point of the lower hull. With `exhausts`, it gives only bounds if no point is below the cutoff.
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

        def attempt(
            multiplier: float, below: float, points: list[tuple[float, float]] = points, limit: float = limit
        ) -> Attempt | Bounds:
            best = min(points, key=lambda point: point[0] + multiplier * point[1])
            bound = best[0] + multiplier * (best[1] - limit)
            if exhausts and best[0] + multiplier * best[1] >= below:
                return Bounds(multiplier, {some.mesh: bound})
            return Attempt(multiplier, planned(best), best[1], {some.mesh: bound})

        first = Attempt(0.0, planned(cheapest), cheapest[1], {some.mesh: cheapest[0]})
        tried = Tried(limit, [first, Attempt(inf, planned(cheapest), cheapest[1])])
        search_for(tried, attempt, [some.mesh], 40)
        optimum = min(seconds for seconds, count in points if count <= limit)
        assert tried.best is not None, f"seed {seed}"
        assert tried.best.seconds >= optimum, f"seed {seed}"
        assert tried.best.seconds * (1 - tried.gap) <= optimum * (1 + 1e-9), f"seed {seed}"
        found_best += tried.best.seconds == optimum
    print(f"the cheapest was found in {found_best} of at most 300 cases")
    assert found_best > 100


def test_where_nothing_fits_few_multipliers_are_tried(library: Library, build: Build) -> None:
    """Scouting tries the first multiplier and the one at which the steps would end. The first is left out if the plan
    of the other is far too large. One between is tried only if a plan is nearly small enough.
    """
    some = search(build(MODEL), TWO, load_machine("dgx-a100"), library)
    plan = replace(some, cost=Cost(compute=1.0, memory=Memory(parameters=10.0)))

    def asked(search_for: Callable[..., None], least: float, found: float = 10.0) -> list[float]:
        made: list[float] = []

        def attempt(multiplier: float, below: float) -> Attempt:
            made.append(multiplier)
            assert below == pytest.approx(PRUNED_LIMITED * 1.0 + multiplier * COUNTED_FITS * 5.0)
            return Attempt(multiplier, plan, found)

        given = [Attempt(0.0, plan, least), Attempt(inf, plan, least)]
        search_for(Tried(5.0, given), attempt, [some.mesh], 5)
        return made

    steps = asked(try_multipliers, 10.0)
    assert len(steps) == 5 and steps == sorted(steps)
    assert asked(scout_multipliers, 5.0) == pytest.approx([steps[0], steps[-1]])
    assert asked(scout_multipliers, 5.1) == pytest.approx([steps[-1]])
    assert asked(scout_multipliers, 5.1, found=5.1) == pytest.approx([steps[-1], steps[0], sqrt(steps[0] * steps[-1])])


def test_what_a_byte_is_worth_is_paid_before_less_is(library: Library, build: Build) -> None:
    """Points on a curve on which memory costs less than its shadow price. After a plan that fits at a higher price, the
    shadow price is tried, then a part of it. If that plan takes far longer than the cheapest of all, nothing more is
    tried.
    """
    some = search(build(MODEL), TWO, load_machine("dgx-a100"), library)

    def planned(seconds: float, count: float) -> Plan:
        return replace(some, cost=Cost(compute=seconds, memory=Memory(parameters=count)))

    def asked(least: float, far: float = inf, worth: float = 0.5) -> list[float]:
        made: list[float] = []

        def attempt(multiplier: float, below: float) -> Attempt:
            made.append(multiplier)
            return Attempt(multiplier, planned(1.2, 4.0), 4.0)

        start = planned(1.0, 10.0)
        tried = Tried(5.0, [Attempt(0.0, start, least), Attempt(inf, start, least)], worth=worth)
        scout_multipliers(tried, attempt, [some.mesh], 5, far)
        return made

    dearest = Tried(5.0, [Attempt(0.0, planned(1.0, 10.0), 10.0)], worth=0.5).dearest
    assert asked(10.1) == pytest.approx([dearest, 0.5, LEAST_PRICE * 0.5]), "far too much is held: the dearest is first"
    assert asked(10.0) == pytest.approx([0.5, LEAST_PRICE * 0.5])
    assert asked(10.1, far=1.3) == asked(10.1) and asked(10.1, far=1.2) == pytest.approx([dearest])
    assert asked(10.0, worth=0.0)[0] > 0.5, "where nothing is known of its worth the dearest comes first"


def test_a_mesh_is_out_where_a_bound_is_above_the_best_plan(library: Library, build: Build) -> None:
    some = search(build(MODEL), TWO, load_machine("dgx-a100"), library)

    def attempt(multiplier: float, seconds: float, count: float, bound: float) -> Attempt:
        plan = replace(some, cost=Cost(compute=seconds, memory=Memory(parameters=count)))
        return Attempt(multiplier, plan, count, {TWO: bound})

    large, fitting = attempt(0.0, 1.0, 10.0, 1.0), attempt(1e-3, 2.0, 5.0, 1.5)
    tried = Tried(5.0, [large, Attempt(inf, large.plan, 10.0)])
    assert not tried.is_out(TWO) and tried.of_use == PRUNED_LIMITED
    tried.attempts.append(fitting)
    assert not tried.is_out(TWO) and tried.of_use == 2.0 and tried.gap_on([TWO]) == pytest.approx(0.25)
    tried.exhausted.append(Bounds(1e-3, {TWO: 2.0001}))
    assert not tried.is_out(TWO), "what a plan holds may count as a little more than the limit"
    tried.exhausted.append(Bounds(1e-3, {TWO: 2.001}))
    assert tried.is_out(TWO) and tried.gap_on([TWO]) == 0 and not tried.is_out(Mesh(()))


def test_bounds_tell_what_plans_hold_at_least(library: Library, build: Build) -> None:
    """A plan below the cutoff costs at least the bound, with its bytes priced. This bounds its bytes from below."""
    some = search(build(MODEL), TWO, load_machine("dgx-a100"), library)
    plan = replace(some, cost=Cost(compute=1.0, memory=Memory(parameters=10.0)))
    tried = Tried(5.0, [Attempt(0.0, plan, 9.0), Attempt(inf, plan, 9.0)])
    assert tried.least == 9.0 and tried.bounds() == {}
    assert describe_gap(tried, True) == "duality gap: no bound is known on the plans that fit"
    tried.exhausted.append(Bounds(100.0, {TWO: 100.0 + PRUNED_LIMITED, Mesh(()): 300.0}))
    assert tried.least == pytest.approx(5.0 + 1.0)
    tried.exhausted.append(Bounds(200.0, {TWO: -1.0, Mesh(()): 400.0, ONE_MORE: -1.0}))
    assert tried.bounds() == {TWO: 100.0 + PRUNED_LIMITED, Mesh(()): 400.0}, "a bound below 0 tells nothing of a mesh"
