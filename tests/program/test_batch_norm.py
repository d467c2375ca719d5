"""batch_norm against torch.nn's modules, and over a batch that devices share against one device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool

from .test_updates import loaded

Compile = Callable[..., Path]

BLOCK = """
block norm(x)
  weight gain: f32[c] ~ ones
  weight bias: f32[c] ~ zeros
  buffer mean: f32[c] ~ zeros
  buffer variance: f32[c] ~ ones
  y, new_mean, new_variance = batch_norm(x, gain, bias, mean, variance; momentum=0.3, eps=1e-3)
  update mean = new_mean
  update variance = new_variance
  return y
"""
IMAGES = f"""{BLOCK}
model images[b = 4, c = 6, h = 2, w = 3]
  input x: f32[b, c, h, w]
  input target: f32[b, c, h, w]
  weight scale: f32[1, c, 1, 1] ~ normal(1)
  y = norm(x * scale)
  loss mse(y, target)
  output y
"""
ROWS = f"""{BLOCK}
model rows[b = 8, c = 6]
  input x: f32[b, c]
  input target: f32[b, c]
  weight scale: f32[c] ~ normal(1)
  y = norm(x * scale)
  loss mse(y, target)
  output y
"""


@pytest.mark.parametrize(("text", "module"), [(IMAGES, nn.BatchNorm2d), (ROWS, nn.BatchNorm1d)], ids=["2d", "1d"])
def test_it_is_torch_s(text: str, module: type[nn.Module], compile_program: Compile) -> None:
    """Values, running statistics and gradients over some steps, then evaluation."""
    out = compile_program(text, devices=1)
    source = torch.Generator().manual_seed(2)
    with loaded(out) as (program, model):
        theirs = module(6, eps=1e-3, momentum=0.3).double()
        scale = model.scale.detach().clone().requires_grad_()
        shape = program.INPUTS["x"].shape
        for step in range(4):
            if step == 3:
                model.eval(), theirs.eval()
            x, target = (torch.randn(shape, generator=source, dtype=torch.float64) for _ in range(2))
            model.zero_grad(), theirs.zero_grad()
            scale.grad = None
            loss, outputs = model(x=x, target=target)
            expected = theirs(x * scale)
            loss.backward()
            nn.functional.mse_loss(expected, target).backward()
            torch.testing.assert_close(outputs["y"], expected, rtol=1e-11, atol=1e-12)
            torch.testing.assert_close(model.y.mean, theirs.running_mean, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(model.y.variance, theirs.running_var, rtol=1e-12, atol=1e-12)
            for ours, gradient in (
                (model.scale, scale.grad), (model.y.gain, theirs.weight.grad), (model.y.bias, theirs.bias.grad)
            ):  # fmt: skip
                torch.testing.assert_close(ours.grad, gradient, rtol=1e-9, atol=1e-12)


STATISTICS_IN_THE_LOSS = """
model statistics[b = 4, c = 6]
  input x: f32[b, c]
  input target: f32[b, c]
  weight scale: f32[c] ~ normal(1)
  weight gain: f32[c] ~ ones
  weight bias: f32[c] ~ zeros
  buffer mean: f32[c] ~ zeros
  buffer variance: f32[c] ~ ones
  y, m, v = batch_norm(x * scale, gain, bias, mean, variance; momentum=0.3)
  update mean = m
  update variance = v
  loss mse(y, target) + reduce_sum((m * m * v)[c] -> []) * 0.1
"""


def test_statistics_that_the_loss_reads_carry_gradients(compile_program: Compile) -> None:
    """torch's own call gives statistics no gradients, so the program does not use it."""
    out = compile_program(STATISTICS_IN_THE_LOSS, devices=1)
    assert "F.batch_norm" not in (out / "model.py").read_text()
    with loaded(out) as (_, model):
        x, target = (torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
        loss, _ = model(x=x, target=target)
        loss.backward()
        scale, gain, bias = (p.detach().clone().requires_grad_() for p in (model.scale, model.gain, model.bias))
        z = x * scale
        y = nn.functional.batch_norm(z, None, None, gain, bias, training=True)
        mean, variance = 0.3 * z.mean(0), 0.7 + 0.3 * z.var(0)
        (nn.functional.mse_loss(y, target) + (mean * mean * variance).sum() * 0.1).backward()
        torch.testing.assert_close(model.scale.grad, scale.grad, rtol=1e-9, atol=1e-12)


PINS = {
    "batch": (2, ["z=S0", "n.y=S0"], True),
    "height": (2, ["z=S2", "n.y=S2"], True),
    "channels": (2, ["z=S1", "n.y=S1", "n.mean=S0"], False),
    "batch and height": (4, ["z=S0,S2", "n.y=S0,S2"], True),
    "batch and channels": (4, ["z=S1,S0", "n.y=S1,S0", "n.variance=S0,I"], True),
    "batch twice": (4, ["z=S0,S0", "n.y=S0,S0", "n.variance=I,S0"], True),
}
SHARED = f"""{BLOCK}
model shared[b = 4, c = 4, h = 4, w = 3]
  input x: f32[b, h, w, c]
  input target: int<c>[b]
  weight k: f32[c, c] ~ normal(1)
  z = linear(x, k)[b, h, w, c] -> [b, c, h, w]
  n = norm(z)
  logits = reduce_mean(relu(n)[b, c, h, w] -> [b, c])
  loss cross_entropy(logits, target)
  output logits
"""


@pytest.mark.parametrize("name", PINS)
def test_statistics_are_over_the_whole_batch(name: str, compile_program: Compile, pool: RankPool) -> None:
    ranks, pins, collective = PINS[name]
    out = compile_program(SHARED, devices=ranks, pins=pins)
    assert (
        "parallel.standardised(" in (out / "model.py").read_text().split("batch_norm")[1].split("torch.relu")[0]
    ) is collective
    report = check(out, pool=pool)
    assert report.ok, report


GROUPS = """
model groups[b = 4, c = 8, h = 4, w = 3]
  input x: f32[b, h, w, c]
  input target: f32[b, c, h, w]
  weight k: f32[c, c] ~ normal(1)
  weight gain: f32[c] ~ ones
  weight bias: f32[c] ~ zeros
  z = linear(x, k)[b, h, w, c] -> [b, c, h, w]
  y = group_norm(z, gain, bias; groups=4)
  loss mse(y, target)
"""


@pytest.mark.parametrize(
    ("ranks", "pins"),
    [(2, ["y=S1", "gain=S0"]), (2, ["y=S2"]), (4, ["y=S0,S1"])],
    ids=["groups", "height", "batch and groups"],
)
def test_group_norm_on_slices(ranks: int, pins: list[str], compile_program: Compile, pool: RankPool) -> None:
    report = check(compile_program(GROUPS, devices=ranks, pins=pins), pool=pool)
    assert report.ok, report


LAYERS = """
model layers[b = 4, s = 3, d = 8]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight k: f32[d, d] ~ normal(1)
  weight gain: f32[d] ~ normal(1)
  weight bias: f32[d] ~ normal(1)
  z = linear(x, k)
  y = layer_norm(z, gain, bias)
  loss mse(y, target)
"""


@pytest.mark.parametrize(
    ("ranks", "pins"),
    [(2, ["z=S2", "y=S2"]), (4, ["z=S2,S2", "y=S2,S2"]), (4, ["z=S0,S2", "y=S0,S2"])],
    ids=["width", "width twice", "batch and width"],
)
def test_layer_norm_on_slices_of_what_it_normalises(
    ranks: int, pins: list[str], compile_program: Compile, pool: RankPool
) -> None:
    out = compile_program(LAYERS, devices=ranks, pins=pins)
    text = (out / "model.py").read_text()
    assert "parallel.standardised(" in text and "parallel.reduce_" not in text.split("layer_norm")[1].split("mse")[0]
    report = check(out, pool=pool)
    assert report.ok, report


OWN = """
op scaled_deviation(x: [n, c, s..], w: [c]) -> y: [n, c, s..], spread: [c]
  m[c] = sum(n, s..) x[n, c, s..] / (|n| * |s..|)
  v[c] = sum(n, s..) (x[n, c, s..] - m[c]) * (x[n, c, s..] - m[c]) / (|n| * |s..|)
  y[n, c, s..] = w[c] * (x[n, c, s..] - m[c]) / sqrt(v[c] + 1e-3) + m[c]
  spread[c] = sqrt(v[c] + 1e-3)
"""
DEVIATIONS = """
model deviations[b = 4, c = 4, h = 4]
  input x: f32[b, c, h]
  input target: f32[b, c, h]
  weight k: f32[1, c, 1] ~ normal(1)
  weight w: f32[c] ~ normal(1)
  z = x * k
  y, spread = scaled_deviation(z, w)
  loss mse(y, target) + reduce_sum((spread * spread)[c] -> []) * 0.1
"""


@pytest.mark.parametrize("pins", [["z=S0", "y=S0"], ["z=S2", "y=S2"]], ids=["batch", "height"])
def test_an_operator_of_one_s_own_that_standardises(
    pins: list[str], compile_program: Compile, pool: RankPool, tmp_path: Path
) -> None:
    """Mean and variance are also read elsewhere, and have gradients of their own."""
    (tmp_path / "own.uop").write_text(OWN)
    out = compile_program(DEVIATIONS, devices=2, pins=pins, operators=[tmp_path])
    assert "parallel.standardised(" in (out / "model.py").read_text()
    report = check(out, pool=pool)
    assert report.ok, report
