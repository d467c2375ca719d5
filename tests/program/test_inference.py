"""Models without a loss, and models called without the inputs that only the loss reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

Compile = Callable[..., Path]

LAYERS = """
  input x: f32[b, d]
  weight up: f32[h, d] ~ normal(0.5)
  weight down: f32[classes, h] ~ normal(0.5)
  buffer calls: f32[] ~ zeros
  update calls = calls + 1
  logits = linear(dropout(relu(linear(x, up)); p=0.5), down)
"""
TRAINED = f"""
model trained[b = 8, d = 4, h = 8, classes = 6]
  input target: int<classes>[b]
{LAYERS.strip(chr(10))}
  input weights: f32[b]
  loss cross_entropy(logits, target) + reduce_mean(weights[b] -> []) * reduce_mean(logits[b, c] -> [])
  output logits
"""
INFERENCE = f"""
model inference[b = 8, d = 4, h = 8, classes = 6]
{LAYERS.strip(chr(10))}
  output softmax(logits) as probabilities
"""


@pytest.mark.parametrize(("ranks", "strategy"), [(1, "auto"), (2, "random:3"), (4, "random:5")])
def test_a_model_without_a_loss_equals_its_reference(
    compile_program: Compile, pool: RankPool, ranks: int, strategy: str
) -> None:
    out = compile_program(INFERENCE, devices=ranks, strategy=strategy)
    report = check(out, pool=pool)
    assert report.ok and not report.trained
    assert not (out / "train.py").exists() and not (out / "data.py").exists()


def test_check_finds_an_output_that_differs(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(INFERENCE, devices=1)
    text = (out / "model.py").read_text()
    (out / "model.py").write_text(text.replace("torch.softmax(logits, -1)", "torch.softmax(logits, 0)"))
    report = check(out, pool=pool)
    assert not report.ok and "probabilities" in report.worst and report.edited == ("model.py",)


def test_what_has_no_loss_has_no_gradient_and_says_so(compile_program: Compile) -> None:
    """The plan has no backward cost, and torch refuses a backward pass."""
    out = compile_program(INFERENCE, devices=1)
    with load_program(out) as program:
        model = program.Model()
        model.initialise(0)
        loss, outputs = model(x=torch.randn(8, 4))
        assert loss is None and model.calls == 1
        with pytest.raises(RuntimeError, match="does not require grad"):
            outputs["probabilities"].sum().backward()


def test_a_trained_model_is_called_without_its_targets(compile_program: Compile) -> None:
    """Inputs that only the loss reads may be left out, all together. Outputs stay the same, and nothing is updated."""
    out = compile_program(TRAINED, devices=1)
    with load_program(out) as program:
        model = program.Model(dtype=torch.float64)
        model.initialise(0)
        model.eval()
        assert [name for name, spec in program.INPUTS.items() if spec.optional] == ["target", "weights"]
        assert list(inspect.signature(model.forward).parameters) == ["x", "target", "weights"]
        x = torch.randn(8, 4, dtype=torch.float64)
        batch: dict[str, Any] = {"target": torch.zeros(8, dtype=torch.int64), "weights": torch.ones(8).double()}
        loss, outputs = model(x, **batch)
        none, alone = model(x)
        expected = F.linear(torch.relu(F.linear(x, model.up)), model.down)
        assert none is None and torch.equal(alone["logits"], outputs["logits"])
        torch.testing.assert_close(alone["logits"], expected, rtol=1e-12, atol=1e-12)
        assert loss.item() == pytest.approx((F.cross_entropy(expected, batch["target"]) + expected.mean()).item())
        with pytest.raises(TypeError, match="input weights is missing"):
            model(x, target=batch["target"])
        model.train()
        model(x)
        assert model.calls == 0


@pytest.mark.parametrize("strategy", ["data_parallel", "random:1", "random:2"])
def test_calls_without_targets_on_ranks(compile_program: Compile, pool: RankPool, strategy: str) -> None:
    """`check` also compares a call without targets."""
    assert check(compile_program(TRAINED, devices=2, strategy=strategy), pool=pool).ok


def test_an_output_that_reads_the_target_needs_it(compile_program: Compile) -> None:
    text = TRAINED + "  output weights * 2 as doubled\n"
    with load_program(compile_program(text, devices=1)) as program:
        assert [name for name, spec in program.INPUTS.items() if spec.optional] == ["target"]
