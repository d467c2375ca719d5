"""The price of a loop besides its iterations, against the kernels of the simulated step."""

from __future__ import annotations

from math import isclose

import pytest

from unity_dsl.graph.plan import BatchDivision, Plan, PlannedSegment, in_micro_batches
from unity_dsl.index.library import Library
from unity_dsl.machine.collective_price import local_fraction
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.accounting.plan_cost import plan_cost
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_problem.loop_price import price_captured, price_sliced, price_stacked
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.layout_problem.plan_assembly import assemble
from unity_dsl.search.layout_problem.problem_context import prices_on
from unity_dsl.search.plan_search import search
from unity_dsl.simulation.step_tasks import step_tasks

from ..conftest import FOUR, Build

SCAN = """
model m[n = 1]
  input xs: f32[8, 6, 4]
  input target: f32[8, 6, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  weight u: f32[4, 4] ~ normal(0.1)
  zs = linear(xs, w)
  scan z in zs along 1 as step
    y = linear(z, u)
    collect y as ys
  loss mse(ys, target)
"""
CARRIED = """
model m[n = 1]
  input x: f32[8, 4]
  input target: f32[8, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  weight u: f32[4, 4] ~ normal(0.1)
  v = linear(x, w)
  repeat 5 as layer
    v = relu(linear(v, u))
  loss mse(v, target)
"""
PLAIN = """
model m[n = 1]
  input x: f32[8, 8192]
  input target: f32[8, 8192]
  weight w: f32[16384, 8192] ~ normal(0.1)
  weight u: f32[16384, 16384] ~ normal(0.1)
  weight h: f32[8192, 16384] ~ normal(0.1)
  loss mse(linear(linear(linear(x, w), u), h), target)
"""
"""Weights whose gradients fill a bucket each."""
SEEDS = range(12)


def kernels(plan: Plan, machine: Machine, library: Library, *names: str) -> float:
    """Seconds of the simulated kernels of these names, launches included."""
    tasks = (task for task in step_tasks(plan, machine, library).tasks if task.name in names)
    return sum(task.seconds + task.launches * machine.launch_seconds for task in tasks)


def priced(plan: Plan, machine: Machine) -> tuple[float, float]:
    """Seconds that the loops of a plan take to add up gradients, and to stack slices."""
    (step,) = (step for step in plan.graph.steps if isinstance(step, PlannedSegment))
    segment, border, mesh = step.segment, step.border, plan.mesh
    added = sum(
        price_captured(segment, value, local_fraction(layout, mesh), machine)
        for value, layout in zip(segment.captured, border.captured, strict=True)
    )
    stacked = 0.0
    for series, layout in zip(segment.sliced, border.sliced, strict=True):
        stacked += price_sliced(series.whole, local_fraction(layout, mesh), machine)
    for series, layout in zip(segment.stacked, border.stacked, strict=True):
        stacked += price_stacked(series.whole, local_fraction(layout, mesh), machine)
    return added, stacked


@pytest.mark.parametrize("text", [SCAN, CARRIED])
def test_a_loop_takes_what_the_simulator_counts(text: str, build: Build, library: Library) -> None:
    """For random plans, in which the loop's operands are whole or in slices."""
    machine, found = load_machine("dgx-h100"), set()
    for seed in SEEDS:
        plan = search(build(text), FOUR, machine, library, f"random:{seed}")
        added, stacked = priced(plan, machine)
        assert added == pytest.approx(kernels(plan, machine, library, "add gradients"), rel=1e-9), f"seed {seed}"
        assert stacked == pytest.approx(kernels(plan, machine, library, "stack"), rel=1e-9), f"seed {seed}"
        found.add((added, stacked))
    assert len(found) > 1 and all(added > 0 for added, _ in found)


@pytest.mark.parametrize("text", [SCAN, CARRIED])
def test_the_search_counts_what_the_plan_costs(text: str, build: Build, library: Library) -> None:
    model, machine = build(text), load_machine("dgx-h100")
    prices = prices_on(FOUR, machine, library, ShardingTheorems(library), model.gradient_bytes)
    problem = build_problem(model, prices, Restriction())
    best = optimise(problem.part, everything(problem.part))
    assert best.plan is not None
    cost = plan_cost(assemble(problem, best.plan, FOUR, model), problem.meaning, prices.conversions, model.loss)
    assert cost.seconds == pytest.approx(best.cost, rel=1e-6)


def test_micro_batches_add_up_what_the_simulator_counts(build: Build, library: Library) -> None:
    machine, found = load_machine("dgx-h100"), set()
    for seed in SEEDS:
        plan = search(build(PLAIN), FOUR, machine, library, f"random:{seed}")
        division = BatchDivision("n", {"n": 3}, 3, ("x", "target"), 3.0)
        parts = in_micro_batches(plan, division)
        added = 2 * plan.cost.accumulation
        assert added == pytest.approx(kernels(parts, machine, library, "add gradients"), rel=1e-9), f"seed {seed}"
        assert isclose(parts.cost.compute, 3 * plan.cost.compute + added)
        found.add(added)
    assert len(found) > 1
