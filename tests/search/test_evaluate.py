"""Evaluations: equal plans are simulated once, however they were found, and no more plans than the budget allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import Exposure
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.search.evaluate import BudgetSpent, Evaluator
from unity_dsl.search.plan_search import search
from unity_dsl.simulation.step_tasks import simulate_step, step_tasks

from .conftest import Build

MODEL = """
model small[n = 1]
  input x: f32[64, 64]
  input target: f32[64, 64]
  weight a: f32[64, 64] ~ normal(0.1)
  weight b: f32[64, 64] ~ normal(0.1)
  h = linear(relu(linear(x, a)), b)
  loss mse(h, target)
"""


def test_a_plan_is_simulated_once(build: Build, library: Library) -> None:
    """Other names of axes and notes do not make another plan, nor does an equal plan of another search. Recomputation
    does, and so do other routes of conversions.
    """
    machine, model = load_machine("dgx-h100"), build(MODEL)
    plan, same = (search(model, all_meshes(machine, 4), machine, library) for _ in range(2))
    evaluator = Evaluator(machine, library)
    named = Mesh(tuple(replace(axis, name=f"other_{axis.name}") for axis in plan.mesh.axes))
    other = replace(plan, mesh=named, notes=(*plan.notes, "another note"))
    assert plan.graph is not same.graph
    timeline = evaluator.timeline(plan)
    assert evaluator.timeline(other) is timeline and evaluator.timeline(same) is timeline and evaluator.count == 1
    assert timeline.seconds == simulate_step(plan, machine, library).seconds
    for changed in (plan.with_passes(recomputed=frozenset({"layer"})), replace(plan, exposed=Exposure(sums=0.5))):
        assert evaluator.timeline(changed) is not timeline
    zero = search(model, all_meshes(machine, 4)[:1], machine, library, "zero")
    assert evaluator.content(zero) != evaluator.content(plan) and evaluator.count == 3


def test_no_more_is_simulated_than_the_budget_allows(build: Build, library: Library) -> None:
    machine = load_machine("dgx-h100")
    plan = search(build(MODEL), all_meshes(machine, 4), machine, library)
    evaluator = Evaluator(machine, library, most=1)
    seconds = evaluator.seconds(plan)
    with pytest.raises(BudgetSpent):
        evaluator.seconds(plan.with_passes(bucket_mib=1))
    assert evaluator.seconds(plan) == seconds and evaluator.count == 1


def test_what_a_plan_holds_is_what_the_tasks_of_its_step_do(build: Build, library: Library) -> None:
    machine = load_machine("dgx-h100")
    for strategy in ("auto", "data_parallel", "zero"):
        plan = search(build(MODEL), all_meshes(machine, 4)[:1], machine, library, strategy)
        evaluator, most = Evaluator(machine, library), step_tasks(plan, machine, library).peak().bytes
        assert evaluator.held(plan) == most == evaluator.counted(plan).cost.memory.total and evaluator.fits(plan)
        short = Evaluator(machine.holding(int(most) - 1), library)
        assert not short.fits(plan) and [warning.code for warning in short.counted(plan).warnings] == ["W301"]
