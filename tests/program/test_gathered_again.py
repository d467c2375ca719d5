"""Weights that are stored in slices: where memory is short, the backward pass gathers them again."""

from __future__ import annotations

import time
from collections.abc import Callable
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
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.search.layout_pins import parse_pins
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

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


def run(rank: int, ranks: int, folder: str, freed: bool) -> dict[str, Any]:
    """The loss and its gradients, and how many gathered weights are held after the forward pass."""
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
        deadline = time.monotonic() + 5  # a thread of gloo lets go of what it has gathered a little later
        while freed and time.monotonic() < deadline and not all(weight.expired() for weight in made):
            time.sleep(0.01)
        held = sum(not weight.expired() for weight in made)
        loss.backward()
        model.synchronise()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        loss, _ = model(x, target)
        with torch.no_grad():
            model.layer[0].down.mul_(2)
        if freed:
            with pytest.raises(RuntimeError, match="a parameter was changed"):
                loss.backward()
    return {"loss": loss.detach(), "gradients": gradients, "held": held, "made": len(made) // 2}


def test_freed_weights_are_gathered_again(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(MODEL, devices=2, pins=PINS)
    kept, freed = (pool.run(run, str(out), freed, ranks=2) for freed in (False, True))
    for before, after in zip(kept, freed, strict=True):
        # The first layer's `up` is read for its own gradient alone: x has none.
        assert (before["made"], before["held"], after["held"]) == (6, 5, 0)
        torch.testing.assert_close(after["gradients"], before["gradients"], rtol=0, atol=0)
    text = (out / "model.py").read_text()
    (out / "model.py").write_text(text.replace("freed=False", "freed=True"))
    assert check(out, pool=pool).ok


def test_they_are_freed_where_the_plan_fits_without_them_alone() -> None:
    library = load_library()
    machine = load_machine("dgx-a100")
    model = build_model(parse_model(Source("m.udl", MODEL.lstrip())), library)
    mesh = Mesh((MeshAxis("a", 2),))

    def planned(bytes_: float) -> Any:
        small = Machine(**{**vars(machine), "memory_bytes": bytes_})
        return search(model, mesh, small, library, "auto", parse_pins(PINS))

    roomy = planned(1e9)
    total = roomy.cost.memory.total
    assert not roomy.gathered_again and planned(total).cost == roomy.cost
    short = planned(total - 1)
    # Six weights of 16 x 8 numbers: all iterations are counted alike, though x of the first one has no gradient.
    assert short.gathered_again and total - short.cost.memory.total == 6 * 16 * 8 * 4
    assert short.cost.communication > roomy.cost.communication and short.cost.compute == roomy.cost.compute
    assert any("gathers them again" in note for note in short.notes) and not short.warnings
    never = planned(short.cost.memory.total - 1)
    assert never.cost == roomy.cost and not never.gathered_again and never.warnings
