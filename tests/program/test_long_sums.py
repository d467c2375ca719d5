"""Sums of thousands of narrow floats, forward and in gradients: within a rounding of float64, else `check` fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

Compile = Callable[..., Path]
ROUNDING = 2.0**-6
"""Relative error of bfloat16 rounding at a few places of a model."""
OPERATORS = """
op rows(i: int<v>[n], w: [v, d]) -> y: [n, d]
  y[n, d] = sum(v) [v == i[n]] * w[v, d]

op segment_sum(x: [n, d], i: int<v>[n]) -> y: [v, d]
  y[v, d] = sum(n) [v == i[n]] * x[n, d]

op picked(i: int<v>[n, d], w: [v, d]) -> y: [n, d]
  y[n, d] = sum(v) [v == i[n, d]] * w[v, d]
"""
HEAD = """
model long[n = 4096, d = 4, v = 3]
  weight h: f32[d, d] ~ normal(0.5)
"""
BODIES = {
    "embedding": "  input i: int<v>[n]\n  weight w: f32[v, d] ~ normal(0.5)\n  y = embedding(i, w)\n",
    "embedding_bag": "  input i: int<v>[n]\n  weight w: f32[v, d] ~ normal(0.5)\n"
    "  y = embedding_bag(i[n] -> [1, n], w)\n",
    "rows": "  input i: int<v>[n]\n  weight w: f32[v, d] ~ normal(0.5)\n  y = rows(i, w)\n",
    "gather": "  input j: int<v>[n, d]\n  weight w: f32[v, d] ~ normal(0.5)\n  y = gather(w, j; dim=0)\n",
    "picked": "  input j: int<v>[n, d]\n  weight w: f32[v, d] ~ normal(0.5)\n  y = picked(j, w)\n",
    "segment_sum": "  input i: int<v>[n]\n  input x: f32[n, d]\n  weight w: f32[d, d] ~ ones\n"
    "  y = segment_sum(linear(x, w), i)\n",
    "layer_norm": "  input x: f32[n, d]\n  weight w: f32[d] ~ ones\n  weight b: f32[d] ~ ones\n"
    "  y = layer_norm(x, w, b)\n",
    "rms_norm": "  input x: f32[n, d]\n  weight w: f32[d] ~ ones\n  y = rms_norm(x, w)\n",
}


def source(kind: str, folder: Path) -> Path:
    (folder / "long.uop").write_text(OPERATORS)
    loss = "  s = square(linear(y, h))\n  z = reduce_mean(s[a, e] -> [])\n  loss z\n"
    (folder / "long.udl").write_text(HEAD.lstrip() + BODIES[kind] + loss)
    return folder / "long.udl"


def gradients(out: Path, dtype: torch.dtype | None) -> dict[str, torch.Tensor]:
    """The gradients of all weights in float64, for integer inputs that select few rows."""
    source = torch.Generator().manual_seed(5)
    with load_program(out) as module:
        model = module.Model(dtype=dtype)
        model.initialise(0)
        batch = {}
        for name, spec in module.INPUTS.items():
            floats = 1 + 0.1 * torch.randn(spec.shape, generator=source, dtype=torch.float64)
            integers = torch.randint(2, spec.shape, generator=source)
            batch[name] = integers if spec.integer_range else floats.to(dtype or module.DTYPE)
        loss, _ = model(**batch)
        loss.backward()
        return {name: parameter.grad.double() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kind", BODIES)
def test_gradients_of_long_sums_are_within_a_rounding(compile_program: Compile, tmp_path: Path, kind: str) -> None:
    out = compile_program(source(kind, tmp_path), devices=1, precision="bf16", operators=[tmp_path])
    exact, found = gradients(out, torch.float64), gradients(out, None)
    for name, expected in exact.items():
        error = (found[name] - expected).norm() / expected.norm()
        assert error < ROUNDING, f"{name}: {float(error):.3g}"


def test_check_finds_gradients_that_add_up_in_the_narrow_type(
    compile_program: Compile, tmp_path: Path, pool: RankPool
) -> None:
    """The one-device program would do the same, but that does not excuse the error."""
    out = compile_program(source("embedding", tmp_path), devices=1, precision="bf16", operators=[tmp_path])
    report = check(out, pool=pool)
    assert report.ok, report
    text = (out / "model.py").read_text()
    narrow = text.replace("else self.full_dtype", "else self.compute_dtype")
    assert narrow != text
    (out / "model.py").write_text(narrow)
    report = check(out, pool=pool)
    assert not report.ok and report.mixed is not None and report.mixed.err > report.mixed.bound
