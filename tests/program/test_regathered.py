"""Sharded weights: if memory is short, the backward pass re-gathers them."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.accounting.memory_budget import Budget
from unity_dsl.search.layout_pins import parse_pins
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .counting import coalesced_gathers

Compile = Callable[..., Path]

MODEL = """
model m[b = 4, d = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  repeat 3 as layer
    weight up: f32[2 * d, d] ~ normal(0.5)
    weight down: f32[d, 2 * d] ~ normal(0.5)
    h = linear(x, up)
    y = linear(relu(h), down)
    x = x + y
  loss mse(x, target)
"""
PINS = ("layer.up=S0", "layer.down=S1", "layer.h=S0", "layer.y=S0")


NAMES = ("layer.up", "layer.down")
HELD = {(): 5, NAMES[:1]: 3, NAMES: 0}
"""Gathered weights that are held after the forward pass, by the freed names.

The backward pass reads each layer's `down`, and each `up` except the first layer's, whose input x has no gradient.
"""


def run(rank: int, ranks: int, folder: str, freed: tuple[str, ...]) -> dict[str, Any]:
    """The loss and its gradients, and the number of gathered weights that are held after the forward pass."""
    with load_program(Path(folder)) as module:
        made = []

        class Gathered(module.parallel.Gathered):  # type: ignore[misc, name-defined]
            def __call__(self, *given: Any) -> Any:
                found = super().__call__(*given)
                made.extend(StorageWeakRef(weight.untyped_storage()) for weight in found)
                return found

        model = module.Model(module.build_mesh("cpu"), dtype=torch.float64)
        model.initialise(0)
        model.gathered = Gathered(model.groups, freed)
        source = torch.Generator().manual_seed(0)
        x, target = (torch.randn(4, 8, generator=source, dtype=torch.float64) for _ in range(2))
        loss, _ = model(x, target)
        deadline = time.monotonic() + 5  # a thread of gloo releases gathered tensors a little later
        while (held := sum(not weight.expired() for weight in made)) > HELD[freed] and time.monotonic() < deadline:
            time.sleep(0.01)
        loss.backward()
        model.synchronise()
        gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        loss, _ = model(x, target)
        with torch.no_grad():
            model.layer[0].down.mul_(2)
        if freed == NAMES:
            with pytest.raises(RuntimeError, match="a parameter was changed"):
                loss.backward()
    return {"loss": loss.detach(), "gradients": gradients, "held": held, "made": len(made) // 2}


def test_freed_weights_are_regathered(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(MODEL, devices=2, pins=PINS)
    kept, some, freed = (pool.run(run, str(out), names, ranks=2) for names in ((), NAMES[:1], NAMES))
    for before, between, after in zip(kept, some, freed, strict=True):
        assert before["made"] == 6
        assert [found["held"] for found in (before, between, after)] == list(HELD.values())
        for found in (between, after):
            torch.testing.assert_close(found["gradients"], before["gradients"], rtol=0, atol=0)
    text = (out / "model.py").read_text()
    for names in (NAMES[:1], NAMES):
        (out / "model.py").write_text(text.replace("freed=()", f"freed={names}"))
        assert check(out, pool=pool).ok


def order(rank: int, ranks: int, folder: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Runs of all-gathers and matrix products, forwards and backwards, each with its length.

    Before them a forward pass fails in the second layer.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._schema.name.partition("::")[2]
            if name in ("mm", "all_gather_into_tensor_coalesced"):
                self.found.append("product" if name == "mm" else "gather")
            return func(*args, **(kwargs or {}))

        @property
        def counted(self) -> list[tuple[str, int]]:
            return [(name, len(list(same))) for name, same in groupby(self.found)]

    with load_program(Path(folder)) as module:
        model = module.Model(module.build_mesh("cpu"), dtype=torch.float64)
        model.initialise(0)
        model.gathered = module.parallel.Gathered(model.groups, (*NAMES, "last"))
        with coalesced_gathers(module, model):
            x = torch.ones(4, 8, dtype=torch.float64)
            second, model.layer[1].forward = model.layer[1].forward, None
            with pytest.raises(TypeError):
                model(x, x)
            model.layer[1].forward = second
            with torch.no_grad():
                model.layer[1].up.mul_(2)  # the prefetched weights are out of date
            with Log() as forward:
                loss, _ = model(x, x)
            with Log() as backward:
                loss.backward()
            model.synchronise()
            assert not model.gathered.begun
            again, _ = model(x, x)
            torch.testing.assert_close(again, loss, rtol=0, atol=0)
    return forward.counted, backward.counted


def test_the_next_block_is_gathered_while_one_computes(compile_program: Compile, pool: RankPool) -> None:
    last = "  weight last: f32[d, d] ~ normal(0.5)\n  z = linear(x, last)\n  loss mse(z, target)"
    text = MODEL.replace("  loss mse(x, target)", last)
    out = compile_program(text, devices=2, pins=(*PINS, "last=S0", "z=S0"))
    assert check(out, pool=pool).ok
    forward, backward = pool.run(order, str(out), ranks=2)[0]
    # Gathers two layers before the first computes, one more before each, and the weights after the loop last.
    assert forward == [("gather", 2), ("product", 2), ("gather", 1), ("product", 2), ("gather", 1), ("product", 3)]
    # A weight has two products: its gradient and its input's. The first layer's x has no gradient.
    assert backward == [("gather", 2), ("product", 2), ("gather", 1), ("product", 4), ("gather", 1), ("product", 7)]


def test_they_are_freed_where_the_plan_fits_without_them_alone() -> None:
    """Lowers the memory limit step by step: first no weight is freed, then one, and in the end both.

    Other layouts are chosen in between. With a batch of 64 the peak is at the start of the backward pass. Then all
    gathered weights are held, except the ones of the last layer that are no longer needed.
    """
    library, machine = load_library(), load_machine("dgx-a100")
    model = build_model(parse_model(Source("m.udl", MODEL.lstrip().replace("b = 4", "b = 64"))), library)
    mesh, weight = Mesh((MeshAxis("a", 2),)), 16 * 8 * 4

    def planned(bytes_: float) -> Any:
        return search(model, mesh, machine.holding(int(bytes_)), library, "auto", parse_pins(PINS))

    unlimited = planned(1e9)
    assert not unlimited.passes.regathered and planned(unlimited.cost.memory.total).cost == unlimited.cost
    plans = [unlimited]
    while not plans[-1].warnings:
        plans.append(planned(plans[-1].cost.memory.total - 1))
    *fitting, never = plans
    counts = [len(plan.passes.regathered) for plan in fitting]
    assert counts == sorted(counts)
    assert {plan.passes.regathered for plan in fitting} == {frozenset(), frozenset(NAMES[:1]), frozenset(NAMES)}
    for before, plan in pairwise(fitting):
        assert plan.cost.memory.total < before.cost.memory.total and plan.cost.seconds > before.cost.seconds
        kept = plan.with_passes(regathered=frozenset())
        freed = Budget(machine, library).held(kept).total - plan.cost.memory.total
        number = len(plan.passes.regathered)
        assert freed == {0: 0, 1: 3 * weight, 2: 4 * weight}[number]
        assert any("re-gathered in the backward pass" in note for note in plan.notes) == bool(number)
        assert any("1 of 2 gathered weights" in note for note in plan.notes) == (number == 1)
    assert never.cost == unlimited.cost and not never.passes.regathered
