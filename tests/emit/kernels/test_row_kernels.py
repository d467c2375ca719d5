"""Kernels over rows and columns in Triton's interpreter, against the reference evaluation in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.index.test_ops import CASES
from unity_dsl.emit.kernels import row_kernel_text
from unity_dsl.index.library import Library

from .kernel_runs import error, expected, fused, kernel_module, run

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
ROWS = [
    *("softmax", "log_softmax", "layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm", "group_norm", "batch_norm"),
    *("cross_entropy", "nll", "mse", "l1", "huber", "smooth_l1", "binary_cross_entropy_with_logits"),
    *("add", "sub", "mul", "div", "scale", "shift", "relu", "gelu", "gelu_tanh", "tanh", "sigmoid", "exp", "silu"),
    *("neg", "abs", "square", "sqrt", "rsqrt", "log", "clamp", "maximum", "minimum", "softplus", "leaky_relu", "elu"),
    *("choose", "masked_fill", "causal_mask", "dropout", "rope", "root_scale", "reciprocal"),
]
"""Operators that must have kernels."""


def in_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounds to a narrow type, at sizes at which no result is a difference of much larger numbers."""
    if not tensor.is_floating_point() or dtype == torch.float64:
        return tensor
    return (tensor / max(1.0, float(tensor.abs().max()) / 4)).to(dtype)


@pytest.mark.a_day(46)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", [name for name in ROWS if name in CASES])
def test_kernels_compute_what_the_equations_say(
    name: str, dtype: torch.dtype, library: Library, tmp_path: Path
) -> None:
    for seed in range(2):
        compare(name, seed, dtype, library, tmp_path)


@pytest.mark.a_day(31)
@pytest.mark.parametrize("split", [False, True], ids=["tiles", "split"])
@pytest.mark.parametrize("name", [name for name in ROWS if name in CASES])
def test_rows_and_columns_in_several_blocks(
    name: str, split: bool, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns by tiles, rows in a loop: otherwise only large tensors need this."""
    monkeypatch.setattr(row_kernel_text, "ONE_TILE", 2)
    monkeypatch.setattr(row_kernel_text, "TILE", 4)
    monkeypatch.setattr(row_kernel_text, "UNROLLED", 1)
    monkeypatch.setattr(row_kernel_text, "SPLIT", 2 if split else 2**30)
    monkeypatch.setattr(row_kernel_text, "ELEMENTS", 4)
    monkeypatch.setattr(row_kernel_text, "PROGRAMS", 2)
    for seed in range(2, 5):
        compare(name, seed, torch.float64, library, tmp_path)


def compare(name: str, seed: int, dtype: torch.dtype, library: Library, tmp_path: Path) -> None:
    """Compares results and gradients of a random case with the reference evaluation."""
    random = np.random.default_rng(seed)
    case = CASES[name](random)
    inputs = [in_type(tensor, dtype) for tensor in case.inputs]
    operator = fused(case.instance(library.operators[name]), library)
    assert operator is not None, f"seed {seed}: {name} has no kernel"
    shapes = [operator.instance.shape(output) for output in operator.instance.outputs]
    cotangents = [torch.from_numpy(random.standard_normal(shape)).to(dtype) for shape in shapes]
    results, gradients = run(kernel_module(operator, tmp_path), operator, inputs, cotangents)
    wanted, wanted_gradients = expected(operator, inputs, cotangents, library)
    for found, exact in [*zip(results, wanted, strict=True), *zip(gradients, wanted_gradients, strict=True)]:
        assert found.dtype == dtype
        assert error(found, exact) <= TOLERANCE[dtype], f"seed {seed}"
