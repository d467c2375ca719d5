"""The fraction of the gradients that a plan sums, against the bytes of collectives in a simulated step."""

from __future__ import annotations

import pytest

from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.accounting.summed_gradients import summed_part
from unity_dsl.search.plan_search import search
from unity_dsl.simulation.step_tasks import step_tasks
from unity_dsl.simulation.task import Purpose

from ..conftest import TWO, Build

MODEL = """
block layer(x)
  weight up: f32[64, 32] ~ normal(0.1)
  weight down: f32[32, 64] ~ normal(0.1)
  return linear(relu(linear(x, up)), down)

model small[n = 8, layers = 3]
  input x: f32[n, 32]
  input target: f32[n, 16]
  weight head: f32[16, 32] ~ normal(0.1)
  repeat layers as body
    x = layer(x)
  loss mse(linear(x, head), target)
"""
MACHINE = load_machine("dgx-h100")
BYTES = 3 * 2 * 64 * 32 * 4 + 16 * 32 * 4


def bytes_of_sums(plan: Plan, library: Library) -> float:
    """Bytes of gradients that are summed. Over two devices, an all-reduce of n bytes sends n from each, a
    reduce-scatter n / 2.
    """
    tasks = [task for task in step_tasks(plan, MACHINE, library).tasks if task.purpose is Purpose.GRADIENTS]
    assert {task.name for task in tasks} <= {"all_reduce", "reduce_scatter"}
    return sum(task.sent * (1 if task.name == "all_reduce" else 2) for task in tasks if task.device == 0)


def test_data_parallelism_sums_all_gradients(build: Build, library: Library) -> None:
    plan = search(build(MODEL), TWO, MACHINE, library, "data_parallel")
    assert summed_part(plan) == 1
    assert bytes_of_sums(plan, library) == BYTES


def test_plans_drawn_by_chance_sum_some(build: Build, library: Library) -> None:
    parts = set()
    for seed in range(8):
        plan = search(build(MODEL), TWO, MACHINE, library, f"random:{seed}")
        part = summed_part(plan)
        assert bytes_of_sums(plan, library) == pytest.approx(part * BYTES), seed
        parts.add(part)
    assert len(parts) > 2
