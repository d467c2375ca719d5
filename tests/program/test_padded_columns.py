"""Linear maps with padded columns against the same models without padding, on machines where padding pays or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.machine.machine import machine_source

from ..examples.agreement import path_of
from .test_deferred_gradients import written

Compile = Callable[..., Path]

GPT2 = path_of("gpt2")
CLASSES = """model classes[b = 16, d = 8, classes = 34]
  precision bf16
  input x: f32[b, d]
  input target: int<classes>[b]
  weight v: f32[d, d] ~ normal(1)
  weight w: f32[classes, d] ~ normal(1)
  weight bias: f32[classes] ~ normal(1)
  y = linear(tanh(linear(x, v)), w) + bias
  loss cross_entropy(y, target)
  output y
"""


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A machine whose unaligned products are so slow that all of them are padded."""
    path = tmp_path / "slow.toml"
    text, found = re.subn(r"(\[unaligned\]\n.*\n)times = .*", r"\1times = [5e6, 2e6]", machine_source("h200").text)
    assert found == 1
    path.write_text(text)
    return str(path)


def step(program: Path, dtype: torch.dtype | None, compiled: bool = False) -> dict[str, Tensor]:
    """The loss and gradients of a random batch."""
    torch._dynamo.reset()
    with load_program(program) as module:
        model = module.Model(dtype=dtype)
        model.initialise(0)
        source = torch.Generator().manual_seed(1)
        inputs = {
            name: torch.randint(spec.integer_range, spec.shape, generator=source)
            for name, spec in module.INPUTS.items()
        }
        loss, _ = (torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model)(**inputs)
        loss.backward()
        assert all(parameter.grad.is_contiguous() for parameter in model.parameters())
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}


@pytest.mark.parametrize("compiled", [False, True])
def test_an_odd_vocabulary(compiled: bool, compile_program: Compile, slow: str) -> None:
    choices: dict[str, Any] = {"preset": "small", "settings": {"vocabulary": 33}, "devices": 1}
    padded, plain = compile_program(GPT2, machine=slow, **choices), compile_program(GPT2, machine="local", **choices)
    assert "F.pad(wte_bf16, (0, 0, 0, 7))).narrow(-1, 0, 33)" in (padded / "model.py").read_text()
    assert "F.pad" not in (plain / "model.py").read_text()
    expected = step(plain, torch.float64)
    torch.testing.assert_close(step(padded, torch.float64, compiled), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(step(padded, None, compiled), step(plain, None), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize(
    ("ranks", "choices", "columns"),
    [
        (1, {}, 34),
        (2, {"strategy": "data_parallel"}, 34),
        (2, {"pins": ("w=S0", "bias=S0", "y=S1")}, 17),
    ],
)
def test_programs_equal_their_model(
    ranks: int, choices: dict[str, Any], columns: int, compile_program: Compile, slow: str, pool: RankPool
) -> None:
    """With a bias, on several devices, and with columns sharded over them."""
    out = compile_program(CLASSES, machine=slow, devices=ranks, **choices)
    extra = -columns % 8
    (call,) = re.findall(r"F\.linear\(.*F\.pad\(.*", (out / "model.py").read_text())
    assert re.search(rf"F\.pad\(w_\w+, \(0, 0, 0, {extra}\)\), F\.pad\(bias_\w+, \(0, {extra}\)\)", call), call
    assert f").narrow(-1, 0, {columns})" in call
    report = check(out, steps=2, pool=pool)
    assert report.ok, report


DELAYED = """model delayed[b = 16, d = 8, e = 10]
  precision bf16
  input x: f32[b, d]
  input target: f32[b, d]
  weight first: f32[d, d] ~ normal(1)
  weight up: f32[e, d] ~ normal(1)
  weight down: f32[d, e] ~ normal(1)
  y = linear(tanh(linear(tanh(linear(x, first)), up)), down)
  loss mse(y, target)
"""


def test_weights_whose_gradients_are_delayed(tmp_path: Path, slow: str, pool: RankPool) -> None:
    """Weights with deferred gradients are padded where they are read."""
    pins = ("up=S0", "down=S1", "tanh_1=I", "linear_2=S1")
    _, _, out = written(DELAYED, tmp_path, devices=2, machine=slow, pins=pins)
    text = (out / "model.py").read_text()
    assert re.search(r"parallel\.defer_wgrad\(F\.pad\(up_\w+, \(0, 0, 0, 3\)\)\)", text), text
    assert re.search(r"parallel\.linear\(\w+, up_deferred\)\.narrow\(-1, 0, 5\)", text)
    report = check(out, steps=2, pool=pool)
    assert report.ok, report


def test_products_that_are_aligned_or_wider_are_not_padded(compile_program: Compile, slow: str) -> None:
    for choices in ({"settings": {"classes": 32}}, {"precision": "f32"}):
        assert "F.pad" not in (compile_program(CLASSES, machine=slow, devices=1, **choices) / "model.py").read_text()
