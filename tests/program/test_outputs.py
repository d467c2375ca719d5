"""Outputs: a training step leaves them in their layouts; evaluation and `gather` make them whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.search.accounting.memory_prediction import predict_memory

from .counting import count_collectives

Compile = Callable[..., Path]

LAYERS = """
model m[b = 8, d = 6, h = 12, classes = 4]
  input x: f32[b, d]
  weight up: f32[h, d] ~ normal(0.5)
  weight down: f32[classes, h] ~ normal(0.5)
  hidden = relu(linear(x, up))
  logits = linear(hidden, down)
"""
LOSS = """
  input target: int<classes>[b]
  loss cross_entropy(logits, target)
"""
OUTPUTS = """
  output logits
  output hidden
"""
MODEL = LAYERS.strip("\n") + LOSS.rstrip("\n") + OUTPUTS


def batch() -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(3)
    x = torch.randn(8, 6, generator=source, dtype=torch.float64)
    return {"x": x, "target": torch.randint(4, (8,), generator=source)}


def run(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    """Outputs of a program in every mode, and gradients of its loss plus a second loss on its gathered outputs."""
    with load_program(Path(folder)) as module:
        model = module.Model(module.build_mesh("cpu") if ranks > 1 else None, dtype=torch.float64)
        model.initialise(0)
        loss, outputs = model(**batch())
        gathered = model.gather(outputs)
        (loss + sum(tensor.square().mean() for tensor in gathered.values())).backward()
        model.synchronise()
        found = {name: model.full(name, parameter.grad) for name, parameter in model.named_parameters()}
        _, alone = model(x=batch()["x"])
        model.eval()
        _, whole = model(**batch())
        layouts = {name: spec.layout for name, spec in module.OUTPUTS.items()}
        assert all(module.OUTPUTS[name].shape == tensor.shape for name, tensor in gathered.items())
    modes = {"training": outputs, "gathered": gathered, "without targets": alone, "evaluation": whole}
    detached = {mode: {name: t.detach() for name, t in tensors.items()} for mode, tensors in modes.items()}
    return {"gradients": found, "layouts": layouts, **detached}


@pytest.mark.parametrize(
    ("ranks", "choices", "layouts"),
    [
        (2, {"strategy": "data_parallel"}, {"logits": ("S0",), "hidden": ("S0",)}),
        (2, {"pins": ("up=S0", "down=S1", "hidden=S1", "logits=P")}, None),
        (4, {"strategy": "random:4"}, None),
        (4, {"strategy": "random:11"}, None),
    ],
)
def test_outputs_are_gathered_where_they_are_asked_for(
    compile_program: Compile, pool: RankPool, ranks: int, choices: dict[str, Any], layouts: dict[str, Any] | None
) -> None:
    expected = run(0, 1, str(compile_program(MODEL, devices=1)))
    out = compile_program(MODEL, devices=ranks, **choices)
    for found in pool.run(run, str(out), ranks=ranks):
        assert layouts is None or found["layouts"] == layouts
        for mode in ("gathered", "without targets", "evaluation", "gradients"):
            torch.testing.assert_close(found[mode], expected[mode], rtol=1e-12, atol=1e-13)
        for name, tensor in found["training"].items():
            divided = sum(kind.startswith("S") for kind in found["layouts"][name])
            assert tensor.numel() == expected["training"][name].numel() // 2**divided
    assert check(out, pool=pool).ok


def test_a_training_step_gathers_no_output(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(MODEL, devices=2, strategy="data_parallel")
    ((forward, backward), _) = pool.run(count_collectives, str(out), 25 * 2**20, ranks=2)
    assert not forward and backward == {"all_reduce": 1}


def cost(tmp_path: Path, text: str, *pins: str) -> float:
    path = tmp_path / "m.udl"
    path.write_text(text)
    return compile_model(Request(path, machine="dgx-a100", devices=4, pins=pins)).plan.cost.seconds


def test_gathers_of_outputs_are_priced_without_a_loss_only(tmp_path: Path) -> None:
    pins = ("hidden=S0",)
    without = LAYERS.strip("\n") + LOSS
    assert cost(tmp_path, MODEL, *pins) == cost(tmp_path, without, *pins)
    inference = LAYERS.lstrip("\n") + "  output logits\n"
    assert cost(tmp_path, inference + "  output hidden\n", *pins) > cost(tmp_path, inference, *pins)


def test_an_inference_program_holds_its_outputs_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.udl"
    path.write_text(LAYERS.lstrip("\n") + OUTPUTS.lstrip("\n"))
    plan = compile_model(Request(path, devices=4)).plan
    held = predict_memory(plan.model, plan.graph, plan.mesh, load_library())
    assert held.activations == 4 * (8 * 4 + 8 * 12) <= plan.cost.memory.activations


STORED = """
model stored[b = 4, d = 4]
  input x: f32[b, d]
  input ids: int<6>[b]
  weight gather: f32[d, d] ~ normal(0.5)
  weight counters: f32[6, d] ~ normal(0.5)
  buffer step: f32[d] ~ zeros
  outputs = linear(x + embedding(ids, counters), gather)
  update step = 0.5 * step + reduce_mean(outputs[b, d] -> [d])
  loss mse(outputs, x)
  output outputs
  output outputs as again
  output gather
  output step as before
  output x
  output ids
"""


@pytest.mark.parametrize("strategy", ["data_parallel", "random:1", "random:3"])
def test_outputs_may_be_stored_or_given(compile_program: Compile, pool: RankPool, strategy: str) -> None:
    """Weights, which the next step changes, an updated buffer, and inputs, under names that the program also uses."""
    assert check(compile_program(STORED, devices=2, strategy=strategy), pool=pool).ok
