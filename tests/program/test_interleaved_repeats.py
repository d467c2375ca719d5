"""Repeats with interleaved execution: equivalent programs that communicate while another repeat computes."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.plan_file import load_plan_file
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.emit.written_plan import written_plan
from unity_dsl.graph.plan import Plan
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.moves.passes import interleaving
from unity_dsl.simulation.step_tasks import step_tasks
from unity_dsl.simulation.task import TaskGraph
from unity_dsl.syntax.diagnostic import InputError

from .operations import find_gradients, list_operations
from .peak_memory import count_memory

TOWERS = """model towers[b = 8, d = 8, e = 4]
  input user: f32[b, d]
  input item: f32[b, d]
  input target: f32[b, e]
  left = user
  repeat 3 as left_layer
    weight w: f32[d, d] ~ normal(0.5)
    left = relu(linear(left, w))
  right = item
  scale = sigmoid(item)
  repeat 3 as right_layer
    weight w: f32[d, d] ~ normal(0.5)
    weight v: f32[d, d] ~ normal(0.5)
    right = scale * right + dropout(linear(tanh(linear(right, w)), v); p=0.25)
  third = user * item
  other = user + item
  repeat 3 as third_layer
    weight w: f32[d, d] ~ normal(0.5)
    third = linear(other, w)
    first, second = split(third; dim=1, parts=2)
    other = concat(softmax(first), second; dim=1)
  weight head: f32[e, d] ~ normal(0.5)
  y = linear(left * right + third * other, head)
  loss mse(y, target)
  output y
"""
"""Repeats that carry one value or two, read an outside value, draw random numbers, split and concatenate."""

CHAINS = """model chains[b = 8, d = 8]
  input user: f32[b, d]
  input item: f32[b, d]
  input target: f32[b, d]
  left = user
  repeat 3 as left_layer
    weight w: f32[d, d] ~ normal(0.5)
    left = tanh(linear(left, w))
  right = item
  repeat 3 as right_layer
    weight w: f32[d, d] ~ normal(0.5)
    right = sigmoid(linear(right, w))
  loss mse(left * right, target)
"""


def written(text: str, folder: Path, skew: int = 1, **choices: Any) -> tuple[Plan, Compilation, Path]:
    """A plan with all possible repeats interleaved, with a skewed start, and the folder of its program."""
    (folder / "model.udl").write_text(text)
    request = Request(folder / "model.udl", **choices)
    compiled = compile_model(request)
    plan, out = interleaving(compiled.plan).with_passes(skew=skew), folder / "out"
    write_program(plan, compiled.library, compiled.sources, request, out)
    return plan, compiled, out


@pytest.mark.a_day(3)
@pytest.mark.parametrize(
    ("ranks", "choices"),
    [
        *((4, {"strategy": f"random:{seed}", "mesh": (2, 2), "skew": seed}) for seed in (1, 3, 5)),
        (2, {"strategy": "random:1", "skew": 2}),
        (2, {"strategy": "random:2", "precision": "bf16"}),
        (2, {"strategy": "random:4", "micro_batches": 2}),
    ],
)
def test_an_interleaved_program_is_the_model(
    ranks: int, choices: dict[str, Any], tmp_path: Path, pool: RankPool
) -> None:
    """The program passes its check, its plan reads back equal, and its peak memory is that of the simulated step."""
    plan, compiled, out = written(TOWERS, tmp_path, devices=ranks, **choices)
    assert plan.passes.interleaved == (("left_layer", "right_layer", "third_layer"),)
    report = check(out, steps=2, pool=pool)
    assert report.ok, report
    again, library = written_plan(load_plan_file(out), out)
    assert (again.passes.interleaved, again.passes.skew) == (plan.passes.interleaved, plan.passes.skew)
    machine = load_machine("local")
    graph = step_tasks(plan, machine, compiled.library)
    assert step_tasks(again, machine, library).tasks == graph.tasks
    held = max(found.peak for found in pool.run(count_memory, str(out), ranks=ranks))
    assert graph.peak().bytes == pytest.approx(held, rel=0.1), graph.peak().task


def test_kernels_run_interleaved(tmp_path: Path, pool: RankPool) -> None:
    """A kernel's inputs may still be in flight too."""
    plan, _, out = written(TOWERS, tmp_path, devices=2, strategy="random:1", kernels="triton")
    assert plan.passes.interleaved and "kernels." in (out / "model.py").read_text()
    report = check(out, steps=1, pool=pool)
    assert report.ok, report


@pytest.mark.a_day(3)
@pytest.mark.parametrize(("seed", "skew"), [(0, 1), (2, 2), (5, 2), (8, 1), (8, 2), (10, 2)])
def test_operations_run_in_the_order_that_is_simulated(seed: int, skew: int, tmp_path: Path, pool: RankPool) -> None:
    """Compares matrix products and starts of collectives, forwards and backwards."""
    plan, compiled, out = written(CHAINS, tmp_path, skew, devices=4, mesh=(2, 2), strategy=f"random:{seed}")
    assert plan.passes.interleaved
    ran = pool.run(list_operations, str(out), ranks=4)[0]
    assert merged([name for name in ran if name != "wait"]) == merged(simulated(plan, compiled))


def test_torch_compile_takes_it_in_one_graph(tmp_path: Path, pool: RankPool) -> None:
    _, _, out = written(CHAINS, tmp_path, devices=2, strategy="random:1")
    assert "parallel.interleaved" in (out / "model.py").read_text()
    eager, compiled = (pool.run(find_gradients, str(out), compiled, ranks=2) for compiled in (False, True))
    torch.testing.assert_close(compiled, eager)


def test_sets_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    """The sets are in a modified plan.json."""
    _, _, out = written(CHAINS, tmp_path, devices=2, strategy="random:1")
    record = load_plan_file(out)
    for names in (("left_layer", "other"), ("left_layer", "left_layer.w")):
        with pytest.raises(InputError, match=r"E405.*one number of iterations"):
            written_plan(replace(record, passes=replace(record.passes, interleaved=(names,))), out)


def simulated(plan: Plan, compiled: Compilation) -> list[str]:
    names = {
        "linear": "mm",
        "linear backward": "mm",
        "linear_bias": "mm",
        "linear_bias backward": "mm",
        "permute": "all_to_all",
        "exchange": "all_to_all",
    }
    graph: TaskGraph = step_tasks(plan, load_machine("local"), compiled.library)
    collectives = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send"}
    found = [names.get(task.name, task.name) for task in graph.tasks]
    return [name for name in found if name in {"mm", *collectives}]


def merged(names: list[str]) -> list[str]:
    """Merges consecutive matrix products into one: the backward pass of a linear operator has up to two."""
    short = {"all_gather_into_tensor_out": "all_gather", "all_gather_into_tensor": "all_gather"}
    short |= {"reduce_scatter_tensor": "reduce_scatter", "all_to_all_single": "all_to_all"}
    return [
        name for name, same in groupby(short.get(name, name) for name in names) for _ in ([0] if name == "mm" else same)
    ]
