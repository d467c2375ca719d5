"""Plans with branches on disjoint devices, against the cheapest plan with the same placement of branches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.search import evaluate
from unity_dsl.search.branches.branch_placings import placings
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.pass_notes import pass_notes
from unity_dsl.search.point import Restricted
from unity_dsl.simulation.device_joining import CrossedCollectives
from unity_dsl.simulation.timeline import Timeline

from ..conftest import FOUR, Build
from ..searching import cheapest_point, found, searching

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
"""Sizes at which launches dominate a step."""


def test_the_cheapest_plan_with_these_branches(build: Build, library: Library) -> None:
    """The search in the neighbourhood of the plan without branches finds the optimum of each placement."""
    model, machine = build(TOWERS), load_machine("dgx-h100")
    search = searching(model, [FOUR], machine, library)
    point, least = cheapest_point(search), []
    for placing in placings(point.plan, [FOUR], machine, library)[:2]:
        problem = build_problem(model, point.context.priced(FOUR), Restriction(placed=placing.placed))
        optimum = optimise(problem.part, everything(problem.part))
        assert optimum.plan is not None and optimum.exact
        found = search.solver.on_mesh(replace(point, restricted=Restricted("", placed=placing.placed)), FOUR)
        assert found is not None and found.plan.cost.seconds == pytest.approx(optimum.cost, rel=1e-6)
        assert any("branches run on" in note for note in pass_notes(found.plan, library, lambda plan: 1.0))
        least.append(optimum.cost)
    assert min(least) < point.plan.cost.seconds


def test_branches_whose_devices_would_wait_for_each_other_are_not_taken(
    build: Build, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulator refuses plans whose devices reach collectives in different orders, and the search continues without
    them.
    """
    model, machine = build(TOWERS), load_machine("dgx-h100")
    placed = searching(model, [FOUR], machine, library)
    assert any(node.placement for node in found(placed).graph.nodes())
    simulate = evaluate.simulate_step

    def crossed(plan: Plan, machine: Machine, library: Library) -> Timeline:
        if any(node.placement for node in plan.graph.nodes()):
            raise CrossedCollectives("devices come to collectives in different orders")
        return simulate(plan, machine, library)

    monkeypatch.setattr(evaluate, "simulate_step", crossed)
    without = searching(model, [FOUR], machine, library)
    assert not any(node.placement for node in found(without).graph.nodes())
    assert all(trial.move != "branches" for trial in without.trail)
