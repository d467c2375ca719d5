"""Buffers narrower than a model's floats: stored, sharded and saved in their own type, and cast when they are read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

Compile = Callable[..., Path]

ADAPTED = """\
## A frozen base with adapters, layer by layer.
model adapted[b = 8, d = 8, r = 2, layers = 3]
  {precision}
  buffer scale: f16[d] ~ constant(1.1)
  input x: f32[b, d]
  input target: f32[b, d]
  buffer head: bf16[d, d] ~ normal(0.3)
  repeat layers as layer
    buffer base: bf16[d, d] ~ normal(0.3)
    weight down: f32[r, d] ~ normal(0.3)
    weight up: f32[d, r] ~ normal(0.3)
    x = tanh(linear(x, base) + linear(linear(x, down), up)) * scale
  loss mse(linear(x, head), target)
  output head
"""


def text(precision: str = "") -> str:
    return "\n".join(line for line in ADAPTED.format(precision=precision).splitlines() if line.strip()) + "\n"


def test_it_is_stored_as_declared_and_computed_with_as_the_rest(compile_program: Compile) -> None:
    with load_program(compile_program(text(), devices=1)) as module:
        model = module.Model()
        model.initialise(3)
        kinds = {name: buffer.dtype for name, buffer in model.named_buffers()}
        bases = [f"layer.{number}.base" for number in range(3)]
        assert kinds == {"scale": torch.float16, **dict.fromkeys(["head", *bases], torch.bfloat16)}
        x, target = torch.randn(8, 8), torch.randn(8, 8)
        held = {name: tensor.detach().double().requires_grad_() for name, tensor in model.stored().items()}
        h = x.double()
        for number in range(3):
            down, up, base = (held[f"layer.{number}.{name}"] for name in ("down", "up", "base"))
            h = torch.tanh(F.linear(h, base) + F.linear(F.linear(h, down), up)) * held["scale"]
        expected = F.mse_loss(F.linear(h, held["head"]), target.double())
        expected.backward()  # type: ignore[no-untyped-call]
        loss, outputs = model(x, target)
        loss.backward()
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(outputs["head"], model.head.float())
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad.double(), held[name].grad, rtol=1e-4, atol=1e-5)
        assert {buffer.dtype for buffer in module.Model(dtype=torch.float64).buffers()} == {torch.float64}


@pytest.mark.parametrize("precision", ["", "precision bf16", "precision f16", "precision tf32"])
@pytest.mark.parametrize(
    ("ranks", "choices"),
    [
        (2, {"strategy": "data_parallel"}),
        (2, {"pins": ["head=S0", "layer.*.base=S1", "scale=S0"]}),
        (4, {"strategy": "zero"}),
    ],
    ids=["data_parallel", "pins", "zero"],
)
def test_programs_equal_their_models(
    precision: str, ranks: int, choices: dict[str, object], compile_program: Compile, pool: RankPool
) -> None:
    report = check(compile_program(text(precision), devices=ranks, **choices), pool=pool)
    assert report.ok, report


def buffers(path: Path) -> float:
    """The memory of a device's buffers, in bytes."""
    return compile_model(Request(model=path)).plan.cost.memory.buffers


def test_two_bytes_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.udl"
    path.write_text(text())
    narrow = buffers(path)
    path.write_text(text().replace("bf16", "f32").replace("f16", "f32"))
    assert 2 * narrow == buffers(path) == 4 * (8 + 64 * 4)


def test_checkpoints_keep_the_type(compile_program: Compile, tmp_path: Path) -> None:
    out = compile_program(text("precision bf16"), devices=1)
    train = [sys.executable, str(out / "train.py"), "--checkpoint", str(tmp_path / "saved"), "--save-every", "2"]
    for more in (["--steps", "2"], ["--steps", "4", "--resume"]):
        subprocess.run([*train, *more], check=True, capture_output=True)
    with load_program(out) as module:
        model, other = module.Model(), module.Model()
        other.initialise(0)
        model.load_weights(tmp_path / "saved")
        assert model.head.dtype == torch.bfloat16
        assert torch.equal(model.head, other.head)


def test_all_floats_may_be_narrow(compile_program: Compile) -> None:
    """Nothing is cast then, and buffer updates work as usual."""
    changed = text().replace(": f32", ": bf16").replace(": f16", ": bf16").replace("  output head\n", "")
    out = compile_program(changed + "  update head = head * 0.5\n", devices=1)
    assert ".to(" not in (out / "model.py").read_text().partition("def forward")[2].partition("def parts")[0]
