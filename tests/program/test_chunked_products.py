"""Decomposed matmuls, whose parts overlap communication: the same programs, in the simulated order."""

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
from unity_dsl.graph.chunked_products import chunks_of_plan
from unity_dsl.graph.plan import Plan
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.step_tasks import step_tasks

from .operations import find_gradients, list_operations
from .peak_memory import count_memory
from .test_interleaved_repeats import merged, simulated

LAYERS = """model layers[b = 4, s = 8, d = 8, e = 16]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight first: f32[d, d] ~ normal(0.5)
  h = tanh(linear(x, first))
  repeat 3 as layer
    weight up: f32[e, d] ~ normal(0.5)
    weight gate: f32[e, d] ~ normal(0.5)
    weight bias: f32[e] ~ normal(0.5)
    weight down: f32[d, e] ~ normal(0.5)
    n = softmax(h)
    g = sigmoid(linear(n, gate) + bias) * relu(linear(n, up))
    h = h + linear(g, down)
  loss mse(h, target)
  output h
"""
TENSOR = {"first": "I", "layer.up": "S0", "layer.gate": "S0", "layer.g": "S2", "layer.linear_3": "P"}
SEQUENCES = {**TENSOR, "layer.n": "S0", "layer.h": "S0"}
"""Tensor parallelism, the rest sharded along the examples: gathered before, reduced and scattered after."""
WHOLE = {**TENSOR, "layer.h": "I", "layer.n": "I"}
"""Tensor parallelism, the rest whole on every device: sums of rows."""
GROUPS = {
    name: f"{'S0' if name in ('layer.g', 'layer.linear_3', 'layer.n', 'layer.h') else 'I'},{layout}"
    for name, layout in SEQUENCES.items()
}
"""SEQUENCES on each of two groups of devices, which have different examples."""


def written(
    folder: Path, layouts: dict[str, str] = SEQUENCES, chunks: int = 2, delayed: bool = True, **choices: Any
) -> tuple[Plan, Compilation, Path]:
    """A plan with decomposed matmuls, and the folder of its program."""
    (folder / "model.udl").write_text(LAYERS)
    pins = tuple(f"{name}={layout}" for name, layout in layouts.items())
    request = Request(folder / "model.udl", pins=pins, **choices)
    compiled = compile_model(request)
    plan, out = compiled.plan.with_passes(chunks=chunks, deferred_gradients=delayed), folder / "out"
    write_program(plan, compiled.library, compiled.sources, request, out)
    return plan, compiled, out


def places(plan: Plan, compiled: Compilation) -> set[tuple[str, bool]]:
    """The decomposed matmuls, and whether each reads blocks as they arrive."""
    found = chunks_of_plan(plan, compiled.library, plan.passes.chunks)
    return {(path + one.product.step.node.name, one.reads is not None) for path, one in found}


@pytest.mark.parametrize(
    ("ranks", "layouts", "choices"),
    [
        (2, SEQUENCES, {"recompute": "layer"}),
        (2, WHOLE, {"delayed": False}),
        (4, GROUPS, {"recompute": "layer", "chunks": 4, "delayed": False, "mesh": (2, 2)}),
        (2, SEQUENCES, {"precision": "bf16", "delayed": False}),
        (2, WHOLE, {"micro_batches": 2}),
    ],
)
def test_a_program_in_chunks_is_the_model(
    ranks: int, layouts: dict[str, str], choices: dict[str, Any], tmp_path: Path, pool: RankPool
) -> None:
    """The program passes its check, its plan reads back equal, and its peak memory is that of the simulated step."""
    plan, compiled, out = written(tmp_path, layouts, devices=ranks, **choices)
    reading = {("layer.add_1", True)} if layouts is not WHOLE else set()
    assert places(plan, compiled) == {("layer.linear_3", False), *reading}
    model = (out / "model.py").read_text()
    assert "parallel.linear_sent(" in model and ("parallel.start_conversion_in_blocks(" in model) == bool(reading)
    report = check(out, steps=2, pool=pool)
    assert report.ok, report
    again, library = written_plan(load_plan_file(out), out)
    assert again.passes.chunks == plan.passes.chunks
    machine = load_machine("local")
    graph = step_tasks(plan, machine, compiled.library)
    assert step_tasks(again, machine, library).tasks == graph.tasks
    held = max(found.peak for found in pool.run(count_memory, str(out), ranks=ranks))
    assert graph.peak().bytes == pytest.approx(held, rel=0.1), graph.peak().task


def test_chunks_beside_exchanges(tmp_path: Path, pool: RankPool) -> None:
    """A random plan that needs both decomposed matmuls and exchanges: their names do not clash."""
    _, _, out = written(tmp_path, {}, devices=4, mesh=(2, 2), strategy="random:1")
    parallel = (out / "parallel.py").read_text()
    assert "\nclass Blocks:" in parallel and "\nclass GatheredBlocks:" in parallel
    report = check(out, steps=1, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize("recompute", ["none", "layer"])
@pytest.mark.parametrize("delayed", [False, True])
def test_operations_run_in_the_order_that_is_simulated(
    delayed: bool, recompute: str, tmp_path: Path, pool: RankPool
) -> None:
    """Compares matrix products, and starts of collectives and sent blocks, forwards and backwards."""
    plan, compiled, out = written(tmp_path, delayed=delayed, devices=2, recompute=recompute)
    ran = pool.run(list_operations, str(out), ranks=2)[0]
    assert ran.count("send") > 0
    assert merged([name for name in ran if name != "wait"]) == merged(simulated(plan, compiled))


def test_torch_compile_takes_it_in_one_graph(tmp_path: Path, pool: RankPool) -> None:
    _, _, out = written(tmp_path, devices=2)
    eager, compiled = (pool.run(find_gradients, str(out), compiled, ranks=2) for compiled in (False, True))
    torch.testing.assert_close(compiled, eager)


def test_kernels_beside_chunks(tmp_path: Path, pool: RankPool) -> None:
    """Groups of operators that are one kernel read received blocks."""
    _, _, out = written(tmp_path, devices=2, kernels="triton")
    assert "kernels." in (out / "model.py").read_text()
    report = check(out, steps=1, pool=pool)
    assert report.ok, report
