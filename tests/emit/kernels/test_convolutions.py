"""Convolutions as matrix products of weights and windows, in Triton's interpreter, against the reference in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.graph.overlapping import library_with
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.kernels.fusion import Applied, fuse
from unity_dsl.index.kernels.step_schedule import Contraction
from unity_dsl.index.library import Library

from .kernel_runs import error, expected, fused, kernel_module, run

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
Convolution = tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]
CASES: dict[str, Convolution] = {
    "padded": ((2, 3, 9, 7), (5, 3, 3, 3), {"pad_h": 1, "pad_w": 1}),
    "ragged": ((1, 5, 7, 13), (17, 5, 3, 2), {"pad_w": 1}),
    "pointwise": ((3, 7, 5, 5), (11, 7, 1, 1), {}),
    "dilated": ((2, 3, 11, 9), (4, 3, 3, 3), {"dilation": 2, "pad_h": 2, "pad_w": 2}),
    "strided": ((2, 3, 9, 8), (5, 3, 3, 3), {"stride": 2, "pad_h": 1, "pad_w": 1}),
    "single": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
}
OPERATORS = """
## Each row with what is around it, every channel weighed, and the bias of its result.
op around(x: [b, c, l], w: [o, c, r], bias: [o]; reach = 1) -> y: [b, o, l]
  where r == 2 * reach + 1
  s[b, o, l] = sum(c, r) x[b, c, l + r - reach else 0] * w[o, c, r]
  y[b, o, l] = tanh(s[b, o, l] + bias[o])

## The same in each group of channels by itself, relative to a residual.
op around_in_groups(x: [b, g, c, l], w: [g, o, c, r], z: [b, g, o, l]; reach = 1) -> y: [b, g, o, l]
  where r == 2 * reach + 1
  s[b, g, o, l] = sum(c, r) tanh(x[b, g, c, l + r - reach else 0]) * w[g, o, c, r]
  y[b, g, o, l] = z[b, g, o, l] - s[b, g, o, l]
"""
DECLARED = {
    "around": [Shape((2, 3, 23)), Shape((7, 3, 5)), Shape((7,))],
    "around_in_groups": [Shape((2, 3, 4, 13)), Shape((3, 5, 4, 5)), Shape((2, 3, 5, 13))],
}


def convolved(library: Library, case: Convolution, after: str) -> Instance:
    """`conv2d` with an operator after it."""
    shape, kernel, attributes = case
    conv = instantiate(library.operators["conv2d"], [Shape(shape), Shape(kernel)], attributes)
    (made,) = (conv.shape(output) for output in conv.outputs)
    other = instantiate(library.operators[after], [Shape(made)], {})
    found = fuse([Applied(conv, ("x", "k"), ("y",)), Applied(other, ("y",), ("z",))], {"z"})
    assert found is not None
    return found.instance


def compare(instance: Instance, dtype: torch.dtype, library: Library, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    operator = fused(instance, library)
    assert operator is not None
    (step,) = operator.forward.steps
    assert isinstance(step.kernel, Contraction) and step.kernel.windowed
    inputs = [torch.from_numpy(random.standard_normal(instance.shape(o)) / 2).to(dtype) for o in instance.inputs]
    cotangents = [torch.from_numpy(random.standard_normal(instance.shape(o))).to(dtype) for o in instance.outputs]
    results, gradients = run(kernel_module(operator, tmp_path), operator, inputs, cotangents)
    wanted, wanted_gradients = expected(operator, inputs, cotangents, library)
    for found, exact in [*zip(results, wanted, strict=True), *zip(gradients, wanted_gradients, strict=True)]:
        assert found.dtype == dtype
        assert error(found, exact) <= TOLERANCE[dtype]


@pytest.mark.a_day(6)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_with_what_follows_it(name: str, dtype: torch.dtype, library: Library, tmp_path: Path) -> None:
    compare(convolved(library, CASES[name], "silu"), dtype, library, tmp_path)


@pytest.fixture(scope="module")
def declared() -> Library:
    return library_with(OPERATORS)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", DECLARED)
def test_an_operator_of_a_user_with_windows(name: str, dtype: torch.dtype, declared: Library, tmp_path: Path) -> None:
    instance = instantiate(declared.operators[name], DECLARED[name], {"reach": 2})
    compare(instance, dtype, declared, tmp_path)
