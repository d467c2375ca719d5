"""Sharded weights that are prefetched: in interleaved repeats, after them, and by operators in no repeat."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.interleaved_repeats import in_model_order
from unity_dsl.graph.plan import Plan, PlannedSegment, gathered_once
from unity_dsl.search.moves.passes import interleaving

from .operations import list_operations
from .test_interleaved_repeats import merged, simulated

TOWERS = """model towers[b = 8, d = 8]
  input user: f32[b, d]
  input item: f32[b, d]
  input target: f32[b, d]
  weight enter_left: f32[d, d] ~ normal(0.5)
  weight enter_right: f32[d, d] ~ normal(0.5)
  left = tanh(linear(user, enter_left))
  right = tanh(linear(item, enter_right))
  repeat 3 as left_layer
    weight w: f32[d, d] ~ normal(0.5)
    left = tanh(linear(left, w))
  repeat 3 as right_layer
    weight w: f32[d, d] ~ normal(0.5)
    right = sigmoid(linear(right, w))
  weight leave_left: f32[d, d] ~ normal(0.5)
  weight leave_right: f32[d, d] ~ normal(0.5)
  loss mse(linear(left, leave_left) * linear(right, leave_right), target)
"""

CHAIN = """model chain[b = 8, d = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  weight first: f32[d, d] ~ normal(0.5)
  weight second: f32[d, d] ~ normal(0.5)
  weight third: f32[d, d] ~ normal(0.5)
  y = linear(tanh(linear(tanh(linear(x, first)), second)), third)
  loss mse(y, target)
"""


def written(text: str, folder: Path, *, turns: bool, freed: bool = False, **choices: Any) -> tuple[Plan, Compilation]:
    """Writes a plan to `out`: with interleaved repeats if `turns`, and with gathered weights freed if `freed`."""
    (folder / "model.udl").write_text(text)
    request = Request(folder / "model.udl", **choices)
    compiled = compile_model(request)
    plan = replace(compiled.plan.with_passes(interleaved=()), graph=in_model_order(compiled.plan))
    plan = interleaving(plan) if turns else plan
    if freed:
        inner = (
            f"{step.segment.name}.{name}"
            for step in plan.graph.steps
            if isinstance(step, PlannedSegment)
            for name in gathered_once(step.runs[0].body)
        )
        plan = plan.with_passes(regathered=frozenset([*gathered_once(plan.graph), *inner]))
    write_program(plan, compiled.library, compiled.sources, request, folder / "out")
    return plan, compiled


def ran(folder: Path, ranks: int, pool: RankPool) -> list[str]:
    """The matrix products and starts of collectives that a rank ran."""
    found = pool.run(list_operations, str(folder / "out"), True, ranks=ranks)[0]
    return merged([name.removesuffix("_coalesced") for name in found if name != "wait"])


@pytest.mark.parametrize(("seed", "turns", "freed"), [(4, True, False), (7, True, True), (11, False, False)])
def test_operations_run_in_the_order_that_is_simulated(
    seed: int, turns: bool, freed: bool, tmp_path: Path, pool: RankPool
) -> None:
    """Plans that gather weights in, before and after both repeats, and send values."""
    choices = {"devices": 4, "mesh": (2, 2), "strategy": f"random:{seed}"}
    plan, compiled = written(TOWERS, tmp_path, turns=turns, freed=freed, **choices)
    text = (tmp_path / "out" / "model.py").read_text()
    assert bool(plan.passes.interleaved) is turns and text.count("self.gathered.prefetch_next(") == 2
    assert "self.gathered.start(" in text
    assert check(tmp_path / "out", steps=2, pool=pool).ok
    assert ran(tmp_path, 4, pool) == merged(simulated(plan, compiled))


@pytest.mark.parametrize("freed", [False, True])
def test_operators_in_no_loop_wait_for_what_they_read(freed: bool, tmp_path: Path, pool: RankPool) -> None:
    """All gathers start before the first operator. Re-gathers start one operator ahead. The last sums are sent last."""
    plan, compiled = written(CHAIN, tmp_path, turns=False, freed=freed, devices=2, strategy="zero")
    lines = (tmp_path / "out" / "model.py").read_text().splitlines()
    steps = [line.split("=")[1].split("(")[0].strip() for line in lines if "gathered(" in line or "= F.linear" in line]
    assert steps == ["self.gathered", "F.linear"] * 3
    assert sum("self.gathered.start(gathers)" in line for line in lines) == 1
    assert check(tmp_path / "out", steps=2, pool=pool).ok
    found = ran(tmp_path, 2, pool)
    assert found == merged(simulated(plan, compiled))
    again = ["all_gather", "all_gather"] if freed else []  # only the gradient of x would read `first`
    assert found == ["all_gather", "mm", "all_reduce", *again, "mm", "reduce_scatter"]


LAYERS = """model layers[b = 8, d = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  y = x
  repeat 3 as layer
    weight up: f32[d, d] ~ normal(0.5)
    weight bias: f32[d] ~ normal(0.5)
    weight down: f32[d, d] ~ normal(0.5)
    h = tanh(linear(y, up) + bias)
    y = linear(h, down)
  loss mse(y, target)
"""


@pytest.mark.parametrize("freed", [False, True])
def test_a_weight_that_is_gathered_along_one_axis_and_divided_along_another(
    freed: bool, tmp_path: Path, pool: RankPool
) -> None:
    """Tensor parallelism with biases stored in slices along the data axis.

    An iteration gathers its slices of the biases with its other weights. They do not wait behind the gathers of the
    next iteration.
    """
    pins = ["layer.up=S1,S0", "layer.bias=S0,I", "layer.down=S0,S1", "layer.linear_1=S0,S1", "layer.add_1=S0,S1"]
    choices = {"devices": 4, "mesh": (2, 2), "pins": pins, "shipped_rules": False}
    plan, compiled = written(LAYERS, tmp_path, turns=False, freed=freed, **choices)
    text = (tmp_path / "out" / "model.py").read_text()
    listed = text[text.index("def gathers(self)") :].partition("def forward")[0]
    assert "self.up)" in listed and re.search(r"parameter_gather_0_\w+_and_partition_0_\w+, self\.bias\)", listed)
    assert check(tmp_path / "out", steps=2, pool=pool).ok
    assert ran(tmp_path, 4, pool) == merged(simulated(plan, compiled))
