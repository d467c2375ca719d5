"""Results in the memory of operands, and buffers changed in place: where this is done, and that it is safe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.local_lowering import local_execution, training_lowering
from unity_dsl.graph.reused_operands import is_its_own
from unity_dsl.index.lowering.kept_by_torch import KEPT, Kept
from unity_dsl.index.lowering.operand_reuse import IN_PLACE

from .test_built_tensors import FLOATS, LIBRARY, runs
from .test_operator_text import run, text_of
from .test_operators import draw

MESH = Mesh(())
NORM = """
block norm(x)
  weight gain: f32[c] ~ ones
  weight bias: f32[c] ~ zeros
  buffer mean: f32[c] ~ zeros
  buffer variance: f32[c] ~ ones
  y, new_mean, new_variance = batch_norm(x, gain, bias, mean, variance)
  update mean = new_mean
  update variance = new_variance
  return y
"""
NETWORK = f"""{NORM}
model network[b = 8, c = 6]
  input x: f32[b, c]
  input target: f32[b, c]
  weight w: f32[c, c] ~ normal(0.5)
  repeat 3 as layer
    weight u: f32[c, c] ~ normal(0.5)
    n = norm(linear(x, u))
    x = relu(x + n)
  m = norm(linear(x, w))
  twice = relu(m) + m
  s = relu(sigmoid(twice))
  seen = norm(s)
  loss mse(relu(seen), target)
  output seen
"""


@pytest.mark.parametrize("method", IN_PLACE)
def test_calls_in_place_are_torch_s_and_read_no_operand(method: str) -> None:
    assert hasattr(torch.Tensor, method.removeprefix("."))
    assert KEPT[IN_PLACE[method]] in (Kept.NOTHING, Kept.RESULT)


@pytest.mark.parametrize("name", FLOATS)
def test_what_is_said_to_be_its_own_may_be_changed(name: str) -> None:
    """Every shipped operator: gradients stay the same if a later call negates the result in place."""
    for instance, typed, given in runs(name):
        needs = [x.is_floating_point() for x in given]
        if instance.whole or not any(needs):
            continue
        lowering = training_lowering(instance, typed, MESH, LIBRARY)
        planned = local_execution(instance, typed, MESH, LIBRARY, needs, 8)
        own = [number for number in range(len(instance.outputs)) if is_its_own(lowering, planned, number)]
        for number in own:
            found = []
            for negated in (torch.Tensor.neg, torch.Tensor.neg_):
                inputs = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in given]
                made = run(text_of(instance, typed, LIBRARY), inputs, len(instance.outputs), True, draw)[number]
                assert not made._is_view(), (name, typed.native)
                if not made.requires_grad:
                    break
                floats = [x for x in inputs if x.requires_grad]
                result = negated(made)
                found.append(torch.autograd.grad(result, floats, torch.ones_like(result), allow_unused=True))
            for one, other in zip(*found, strict=True) if found else ():
                assert (one is None and other is None) or torch.equal(one, other), (name, typed.native)


def compiled(text: str, folder: Path, **choices: Any) -> Path:
    path = folder / f"network{len(list(folder.iterdir()))}.udl"
    path.write_text(text)
    request = Request(path, **choices)
    found = compile_model(request)
    write_program(found.plan, found.library, found.sources, request, path.with_suffix(""))
    return path.with_suffix("")


def by_hand(state: dict[str, Tensor], x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The network in plain torch. Updates the statistics in `state`."""

    def norm(x: Tensor, at: str) -> Tensor:
        mean, variance = state[f"{at}.mean"], state[f"{at}.variance"]
        return F.batch_norm(x, mean, variance, state[f"{at}.gain"], state[f"{at}.bias"], True, 0.1, 1e-5)

    for layer in range(3):
        x = F.relu(x + norm(x @ state[f"layer.{layer}.u"].T, f"layer.{layer}.n"))
    m = norm(x @ state["w"].T, "m")
    seen = norm(F.relu(torch.sigmoid(F.relu(m) + m)), "seen")
    return F.mse_loss(F.relu(seen), target), seen


@pytest.mark.parametrize("recompute", ["none", "all"])
def test_a_network_is_what_torch_computes(recompute: str, tmp_path: Path) -> None:
    """Loss, output, gradients and running statistics of some steps, each with two forward passes.

    The second forward pass must not change what the first saved for backward.
    """
    out = compiled(NETWORK, tmp_path, recompute=recompute)
    source = torch.Generator().manual_seed(4)
    with load_program(out) as module:
        model = module.Model(dtype=torch.float64)
        model.initialise(3)
        places = {name: buffer.data_ptr() for name, buffer in model.named_buffers()}
        state = {name: tensor.detach().clone() for name, tensor in model.stored().items()}
        for name, _ in model.named_parameters():
            state[name].requires_grad_()
        for _ in range(2):
            made: list[tuple[Tensor, Tensor]] = []
            for _ in range(2):
                x, target = (torch.randn(8, 6, generator=source, dtype=torch.float64) for _ in range(2))
                loss, outputs = model(x=x, target=target)
                expected, seen = by_hand(state, x, target)
                torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
                torch.testing.assert_close(outputs["seen"], seen, rtol=1e-12, atol=1e-12)
                made.append((loss, expected))
            for loss, expected in made:
                loss.backward(), expected.backward()
            for name, parameter in model.named_parameters():
                torch.testing.assert_close(parameter.grad, state[name].grad, rtol=1e-10, atol=1e-12)
            for name, buffer in model.named_buffers():
                torch.testing.assert_close(buffer, state[name], rtol=1e-12, atol=1e-12)
        kept = {name for name, buffer in model.named_buffers() if buffer.data_ptr() == places[name]}
        again = {name for name in places if recompute == "all" and name.startswith("layer.")}
        assert kept == places.keys() - again  # recomputed bodies need the buffers as they were


def test_operands_give_their_memory_where_nothing_else_reads_them(tmp_path: Path) -> None:
    """`x + n` is written into n, which its operator does not save; `linear` saves x.

    Three values cannot be overwritten: m is read twice, sigmoid saves its result, and `seen` is an output.
    """
    text = (compiled(NETWORK, tmp_path) / "model.py").read_text()
    assert re.findall(r"\w+\.(?:add|relu|sigmoid)_\(.*?\)", text) == [
        "n_y.add_(x)", "add.relu_()", "twice.sigmoid_()"
    ]  # fmt: skip
    assert not re.search(r"torch\.clone|  update$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "instead"),
    [("update mean = new_mean", "update mean = 2 * new_mean"), ("return y", "return y + mean")],
    ids=["scaled", "old value read"],
)
def test_a_buffer_that_is_read_otherwise_is_copied(line: str, instead: str, tmp_path: Path) -> None:
    text = (compiled(NETWORK.replace(line, instead), tmp_path) / "model.py").read_text()
    assert len(re.findall(r"torch\.clone\(\s*torch\.detach\(", text)) == 3
