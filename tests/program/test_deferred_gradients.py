"""Deferred weight gradients, which overlap communication: the same programs, in the simulated order."""

from __future__ import annotations

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
from unity_dsl.graph.deferred_gradients import defers_gradients
from unity_dsl.graph.plan import Plan
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.step_tasks import step_tasks

from .operations import find_gradients, list_operations
from .peak_memory import count_memory
from .test_interleaved_repeats import merged, simulated

LAYERS = """model layers[b = 8, d = 8, e = 16]
  input x: f32[b, d]
  input target: f32[b, d]
  h = x
  repeat 3 as layer
    weight q: f32[d, d] ~ normal(0.5)
    weight k: f32[d, d] ~ normal(0.5)
    weight up: f32[e, d] ~ normal(0.5)
    weight up_bias: f32[e] ~ normal(0.5)
    weight down: f32[d, e] ~ normal(0.5)
    n = tanh(h)
    h = h + dropout(linear(n, q) * sigmoid(linear(n, k)); p=0.25)
    h = softmax(h) + linear(relu(linear(tanh(h), up) + up_bias), down)
  weight head: f32[d, d] ~ normal(0.5)
  y = linear(h, head)
  loss mse(y, target)
  output y
"""
"""Products that read the same value, and products that read the result of another."""

EXPERTS = """model experts[e = 4, b = 4, s = 2, i = 8, o = 8]
  input x: f32[e, b, s, i]
  input target: f32[e, b, s, i]
  h = x
  repeat 2 as layer
    weight up: f32[e, o, i] ~ normal(0.5)
    weight down: f32[e, i, o] ~ normal(0.5)
    weight w: f32[i, i] ~ normal(0.5)
    weight bias: f32[i] ~ normal(0.5)
    h = tanh(expert_linear(tanh(expert_linear(h, up)), down))
    h = tanh(linear(h, w) + bias)
  loss mse(h, target)
"""

CHAIN = """model chain[b = 8, d = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  h = x
  repeat 3 as layer
    weight v: f32[d, d] ~ normal(0.5)
    weight w: f32[d, d] ~ normal(0.5)
    h = tanh(linear(sigmoid(linear(h, v)), w))
  loss mse(h, target)
"""


def written(
    text: str, folder: Path, again: frozenset[str] = frozenset(), **choices: Any
) -> tuple[Plan, Compilation, Path]:
    """A plan with deferred weight gradients, and the folder of its program. The backward pass re-gathers `again`."""
    (folder / "model.udl").write_text(text)
    request = Request(folder / "model.udl", **choices)
    compiled = compile_model(request)
    plan = compiled.plan.with_passes(deferred_gradients=True, regathered=again)
    out = folder / "out"
    write_program(plan, compiled.library, compiled.sources, request, out)
    return plan, compiled, out


@pytest.mark.a_day(3)
@pytest.mark.parametrize(
    ("text", "ranks", "choices"),
    [
        (LAYERS, 4, {"strategy": "random:0", "mesh": (2, 2)}),
        (LAYERS, 4, {"strategy": "random:3", "mesh": (2, 2), "recompute": "layer"}),
        (LAYERS, 2, {"strategy": "random:2", "precision": "bf16"}),
        (LAYERS, 2, {"strategy": "random:1", "micro_batches": 2}),
        (EXPERTS, 4, {"strategy": "random:2", "mesh": (2, 2)}),
        (LAYERS, 4, {"strategy": "random:4", "mesh": (2, 2), "again": frozenset({"layer.q", "layer.k", "layer.up"})}),
    ],
)
def test_a_program_with_deferred_gradients_is_the_model(
    text: str, ranks: int, choices: dict[str, Any], tmp_path: Path, pool: RankPool
) -> None:
    """The program passes its check, its plan reads back equal, and its peak memory is that of the simulated step."""
    plan, compiled, out = written(text, tmp_path, devices=ranks, **choices)
    assert "parallel.defer_wgrad(" in (out / "model.py").read_text()
    report = check(out, steps=2, pool=pool)
    assert report.ok, report
    again, library = written_plan(load_plan_file(out), out)
    assert again.passes.deferred_gradients
    machine = load_machine("local")
    graph = step_tasks(plan, machine, compiled.library)
    assert step_tasks(again, machine, library).tasks == graph.tasks
    held = max(found.peak for found in pool.run(count_memory, str(out), ranks=ranks))
    assert graph.peak().bytes == pytest.approx(held, rel=0.1), graph.peak().task


@pytest.mark.parametrize("seed", [0, 3, 9, 16])
def test_operations_run_in_the_order_that_is_simulated(seed: int, tmp_path: Path, pool: RankPool) -> None:
    """Compares matrix products and starts of collectives, forwards and backwards."""
    plan, compiled, out = written(CHAIN, tmp_path, devices=4, mesh=(2, 2), strategy=f"random:{seed}")
    assert defers_gradients(plan, compiled.library)
    ran = pool.run(list_operations, str(out), ranks=4)[0]
    assert merged([name for name in ran if name != "wait"]) == merged(simulated(plan, compiled))


MEGATRON = {"layer.q": "S0", "layer.k": "S0", "layer.up": "S0", "layer.up_bias": "S0", "layer.down": "S1"}


def megatron(folder: Path, **choices: Any) -> tuple[Plan, Compilation, Path]:
    """Tensor parallelism on two devices. All-reduces sum the gradients of the values that three products read."""
    layouts = MEGATRON | {"layer.linear_1": "S1", "layer.linear_2": "S1", "layer.linear_3": "S1", "layer.n": "I"}
    return written(LAYERS, folder, devices=2, pins=[f"{name}={layout}" for name, layout in layouts.items()], **choices)


def test_products_wait_for_no_collective_that_they_do_not_need(tmp_path: Path, pool: RankPool) -> None:
    """Weight gradients are computed between the start of an input gradient's all-reduce and the wait for it."""
    _, _, out = megatron(tmp_path)
    ran = pool.run(list_operations, str(out), ranks=2)[0]
    backwards = " ".join(ran[ran.index("all_reduce", len(ran) // 2) :])
    assert backwards.count("all_reduce") == 5
    assert backwards.count("all_reduce mm mm wait") == 5


def test_kernels_and_deferred_gradients(tmp_path: Path, pool: RankPool) -> None:
    """Groups of operators that are one kernel read weights unchanged."""
    _, _, out = megatron(tmp_path, kernels="triton")
    model = (out / "model.py").read_text()
    assert "kernels." in model and "parallel.defer_wgrad(" in model
    report = check(out, steps=1, pool=pool)
    assert report.ok, report


def test_torch_compile_takes_it_in_one_graph(tmp_path: Path, pool: RankPool) -> None:
    _, _, out = megatron(tmp_path)
    eager, compiled = (pool.run(find_gradients, str(out), compiled, ranks=2) for compiled in (False, True))
    torch.testing.assert_close(compiled, eager)


def test_a_product_that_runs_after_the_outputs_defers_nothing(tmp_path: Path) -> None:
    """Communication for an output is waited for at once, because the product that only the loss needs comes later."""
    source = tmp_path / "late.udl"
    source.write_text(
        "model late[b = 4]\n"
        "  input ids: int<8>[4, 8]\n"
        "  weight table: f32[8, 4] ~ normal(0.5)\n"
        "  x = embedding(ids, table)\n"
        "  mean = reduce_mean(x[i, j, k] -> [k])\n"
        "  rows = reduce_mean(x[i, j, k] -> [i, j])\n"
        "  weight w: f32[4, 8] ~ normal(0.5)\n"
        "  weight bias: f32[4] ~ normal(0.5)\n"
        "  y = linear(rows, w) + bias\n"
        "  input first: f32[4, 4]\n"
        "  input second: f32[4, 8, 4]\n"
        "  loss mse(y, first) + reduce_mean(mean[k] -> []) * 0.125 + mse(x, second)\n"
        "  output x\n"
    )
    found = 0
    for seed in range(40):
        request = Request(source, devices=4, strategy=f"random:{seed}")
        plan = compile_model(request)
        if not plan.plan.passes.deferred_gradients:
            continue
        out = tmp_path / f"out_{seed}"
        write_program(plan.plan, plan.library, plan.sources, request, out)
        model, parallel = ((out / name).read_text() for name in ("model.py", "parallel.py"))
        assert ("parallel.start_conversion(" in model) <= ("def start_conversion(" in parallel), seed
        found += "parallel.start_conversion(" not in model
    assert found
