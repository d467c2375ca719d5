"""Which segments are recomputed under a memory limit: against every set of them."""

from __future__ import annotations

from itertools import combinations

import pytest

from unity_dsl.graph.layout import Mesh
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.accounting.kept_iterations import keeping_iterations, with_room_used
from unity_dsl.search.accounting.memory_budget import Budget
from unity_dsl.search.accounting.weighed_plan import counted
from unity_dsl.search.plan_search import search
from unity_dsl.search.search_space import SearchSpace, Solving
from unity_dsl.search.solve import solve

from ...datasheet import by_datasheet
from ..conftest import TWO, Build

ONE = Mesh(())
MODEL = """
model m[b = 512]
  input x: f32[b, 16]
  input target: f32[b, 16]
  repeat 4 as wide
    weight up: f32[64, 16] ~ normal(0.1)
    weight down: f32[16, 64] ~ normal(0.1)
    x = x + linear(relu(linear(x, up)), down)
  repeat 3 as narrow
    weight w: f32[16, 16] ~ normal(0.1)
    x = x + relu(linear(x, w))
  repeat 5 as square
    weight up: f32[32, 16] ~ normal(0.1)
    weight down: f32[16, 32] ~ normal(0.1)
    x = x + linear(exp(linear(x, up)), down)
  loss mse(x, target)
"""
COUNTS = {"wide": 4, "narrow": 3, "square": 5}
SEGMENTS = tuple(COUNTS)
SETS = [frozenset(some) for count in range(4) for some in combinations(SEGMENTS, count)]


def test_the_cheapest_set_that_fits_is_recomputed(library: Library, build: Build) -> None:
    """On one device there is no other choice. Recomputed segments keep as many iterations as fit: one more of any of
    them would not fit.
    """
    model, machine = build(MODEL), load_machine("dgx-a100")
    plans = {some: search(model, ONE, machine, library, recompute=some) for some in SETS}
    sizes = {some: plan.cost.memory.total for some, plan in plans.items()}
    assert len(set(sizes.values())) >= 6 and all(plan.passes.recomputed == some for some, plan in plans.items())
    chosen, kept = set(), 0
    for limit in sorted((*sizes.values(), *(1.3 * size for size in sizes.values()))):
        best = min((plan.cost.seconds, sizes[some]) for some, plan in plans.items() if sizes[some] <= limit)
        limited = machine.holding(int(limit))
        found = search(model, ONE, limited, library, recompute=None)
        assert not found.warnings and found.cost.seconds <= best[0] and found.cost.memory.total <= limit
        whole = plans[found.passes.recomputed]
        if not found.passes.kept_iterations:
            assert (found.cost.seconds, found.cost.memory.total) == best
        for path in found.passes.recomputed:
            more = {**found.passes.kept_iterations, path: found.passes.kept_iterations.get(path, 0) + 1}
            if more[path] < COUNTS[path]:
                assert keeping_iterations(whole, more, Budget(limited, library)).cost.memory.total > limit
        chosen.add(found.passes.recomputed)
        kept += sum(found.passes.kept_iterations.values())
    assert len(chosen) >= 3 and frozenset() in chosen and kept
    short = search(model, ONE, machine.holding(int(min(sizes.values())) - 1), library, recompute=None)
    assert [warning.code for warning in short.warnings] == ["W301"]


def test_what_all_has_room_is_not_run_again(library: Library, build: Build) -> None:
    """In a plan that recomputes segments, those whose iterations all fit become as if never recomputed."""
    model, machine = build(MODEL), load_machine("dgx-a100")
    free = search(model, ONE, machine, library)
    again = search(model, ONE, machine, library, recompute=SEGMENTS)
    assert again.passes.recomputed == frozenset(SEGMENTS) and again.cost.memory.total < free.cost.memory.total
    found = with_room_used(again, Budget(machine, library))
    assert not found.passes.recomputed and not found.passes.kept_iterations and found.cost.memory == free.cost.memory
    assert found.cost.seconds == pytest.approx(free.cost.seconds)
    less = with_room_used(again, Budget(machine.holding(int(free.cost.memory.total) - 1), library))
    assert less.passes.recomputed and less.cost.memory.total < free.cost.memory.total


def test_layouts_and_segments_are_chosen_together(library: Library, build: Build) -> None:
    """On two devices the plan is at most 2 % above the best of every given set, and fits if one of these does."""
    model, machine = build(MODEL), by_datasheet("dgx-a100")
    free = search(model, TWO, machine, library)
    most, ratios = free.cost.memory.total, []
    for part in (0.35, 0.5, 0.65, 0.8, 0.95):
        limited = machine.holding(int(part * most))
        given = [search(model, TWO, limited, library, recompute=some) for some in SETS]
        fitting = [plan.cost.seconds for plan in given if not plan.warnings]
        found = search(model, TWO, limited, library, recompute=None)
        assert bool(found.warnings) == (not fitting), part
        if fitting:
            ratios.append(found.cost.seconds / min(fitting))
    print(" ".join(f"{ratio:.4f}" for ratio in ratios))
    assert len(ratios) >= 3 and max(ratios) <= 1.02


@pytest.mark.parametrize(("name", "devices", "part"), [("dgx-a100", 8, 0.5), ("summit", 6, 0.4)])
def test_plans_of_other_meshes_that_fit_are_kept(
    library: Library, build: Build, name: str, devices: int, part: float
) -> None:
    """Under a tight limit, plans of several meshes are compared. All fit, and report the same as the plan that is
    taken.
    """
    model, machine = build(MODEL), by_datasheet(name)
    meshes = all_meshes(machine, devices)
    limited = machine.holding(int(part * search(model, meshes, machine, library).cost.memory.total))

    budget, space = Budget(limited, library), SearchSpace(limited, library, ShardingTheorems(library))
    solution = solve(model, meshes, space, Solving(recompute=None, kept_iterations=None))
    found, others = solution.plan, [plan for plan, _ in solution.others]
    assert others and found.passes.recomputed and not found.warnings
    for other in others:
        assert other.mesh.degrees != found.mesh.degrees and other.cost.seconds >= found.cost.seconds
        held = counted(other, budget).cost.memory
        assert other.cost.memory == held and 0 < held.total <= limited.memory_bytes
        assert (other.unlimited_seconds, other.exposed) == (found.unlimited_seconds, found.exposed)
        assert any(note.startswith("recomputed") for note in other.notes) == bool(other.passes.recomputed)


def test_none_forbids_it(library: Library, build: Build) -> None:
    model, machine = build(MODEL), load_machine("dgx-a100")
    most = search(model, ONE, machine, library).cost.memory.total
    found = search(model, ONE, machine.holding(int(most) - 1), library, recompute=())
    assert found.warnings and not found.passes.recomputed
