"""Plans with branches on disjoint devices, against the cheapest of all plans that place the branches so."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.branches.branch_search import placings, shortest_with_branches
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.plan_search import search
from unity_dsl.search.wanted import Wanted
from unity_dsl.simulation.device_joining import CrossedCollectives

from ..conftest import FOUR, Build

TOWERS = """
model towers[b = 64, d = 16]
  input x: f32[b, d]
  input z: f32[b, d]
  input target: f32[b, d]
  weight u1: f32[d, d] ~ normal(0.5)
  weight u2: f32[d, d] ~ normal(0.5)
  weight u3: f32[d, d] ~ normal(0.5)
  weight v1: f32[d, d] ~ normal(0.5)
  weight v2: f32[d, d] ~ normal(0.5)
  weight v3: f32[d, d] ~ normal(0.5)
  left = linear(relu(linear(relu(linear(x, u1)), u2)), u3)
  right = linear(relu(linear(relu(linear(z, v1)), v2)), v3)
  loss mse(left * right, target)
"""
"""Of sizes at which a step is mostly launches."""


@pytest.mark.parametrize("known", [True, False])
def test_the_cheapest_plan_with_these_branches(known: bool, build: Build, library: Library) -> None:
    """Searched next to the plan without branches, or from nothing where that is not known."""
    model, machine, mesh = build(TOWERS), load_machine("dgx-h100"), FOUR
    wanted = Wanted(machine, library, ShardingTheorems(library), "auto", {}, model.gradient_bytes)
    given = search(model, mesh, machine, library, known=wanted.found)
    assert given.mesh.degrees == mesh.degrees and mesh in wanted.found
    given = replace(given, mesh=mesh)  # its axes are not named yet within a search
    if not known:
        wanted.found.clear()
    least, (best, *others) = [], placings(given, [mesh], machine, library)
    for placing in (best, *others[:1]):
        problem = build_problem(model, wanted.priced(mesh), Restriction(placed=placing.placed))
        optimum = optimise(problem.part, everything(problem.part))
        assert optimum.plan is not None and optimum.exact
        least.append(optimum.cost)
    found = shortest_with_branches(given, [mesh], seconds, wanted)
    assert any("branches run on" in note for note in found.notes)
    assert min(least) < given.cost.seconds
    assert found.cost.seconds == pytest.approx(min(least), rel=1e-6)


def seconds(plan: Plan, below: float = inf) -> float:
    return plan.cost.seconds


def test_branches_whose_devices_would_wait_for_each_other_are_not_taken(build: Build, library: Library) -> None:
    """A simulator that finds collectives in different orders refuses a plan, and the search goes on without it."""
    model, machine = build(TOWERS), load_machine("dgx-h100")
    wanted = Wanted(machine, library, ShardingTheorems(library), "auto", {}, model.gradient_bytes)
    given = replace(search(model, FOUR, machine, library, known=wanted.found), mesh=FOUR)

    def crossed(plan: Plan, below: float = inf) -> float:
        if plan is not given:
            raise CrossedCollectives("devices come to collectives in different orders")
        return seconds(plan)

    assert shortest_with_branches(given, [FOUR], crossed, wanted) is given
