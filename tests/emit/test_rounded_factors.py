"""TF32 emulated on a CPU, against rounding by integer arithmetic in NumPy and against bounds on rounding errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unity_dsl.emit.rounded_factors import UNIT_OF_TF32, rounded, rounding_factors
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.evaluation.rounding_bounds import Bounded, evaluate_bounded
from unity_dsl.index.instantiation.instantiate import Shape, instantiate

Floats = npt.NDArray[np.float32]
LIBRARY = load_library()
SUMMED = 2.0**-20
"""Bound on float32's summation error for up to 100 terms in any order, relative to the sum of their magnitudes."""


def to_bits(x: Floats, kept: int) -> Floats:
    """Rounds to `kept` explicit mantissa bits, ties away from zero, with sign and magnitude separate."""
    whole = np.ascontiguousarray(x).view(np.uint32).astype(np.int64)
    sign, magnitude = whole & 0x80000000, whole & 0x7FFFFFFF
    step = 1 << (23 - kept)
    nearest = (magnitude + step // 2) // step * step
    found = (sign | nearest).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), found, x)


def to_tf32(x: Floats) -> Floats:
    return to_bits(x, 10)


def test_every_pattern_of_bits_is_rounded_as_by_integers() -> None:
    """Includes subnormal numbers, infinities, NaN, and ties of both signs."""
    source = np.random.default_rng(0)
    bits = source.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    ties = (bits & np.uint32(0xFFFFE000)) | np.uint32(0x1000)
    special = np.array([0, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, 0x7F7FFFFF], dtype=np.uint32)
    x = np.concatenate([bits, ties, special]).view(np.float32)
    found = rounded(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(found, to_tf32(x))
    normal = np.isfinite(found) & (np.abs(x) >= np.finfo(np.float32).tiny)
    with np.errstate(over="ignore"):
        moved = np.abs(found[normal].astype(np.float64) - x[normal])
    assert np.all(moved <= UNIT_OF_TF32 * np.abs(x[normal].astype(np.float64)))
    assert np.max(moved / np.abs(x[normal])) > 0.99 * UNIT_OF_TF32


def drawn(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


PRODUCTS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "linear": (F.linear, ((5, 12), (7, 12))),
    "linear with a bias": (lambda x, w, bias: F.linear(x, w, bias), ((5, 12), (7, 12), (7,))),
    "matmul of batches": (torch.matmul, ((2, 3, 5, 12), (2, 3, 12, 7))),
    "einsum": (lambda x, y: torch.einsum("bik,bkj->bij", x, y), ((2, 5, 12), (2, 12, 7))),
    "conv2d": (lambda x, k: F.conv2d(x, k, padding=1), ((2, 3, 6, 6), (4, 3, 3, 3))),
    "conv1d in groups": (lambda x, k: F.conv1d(x, k, groups=2), ((2, 4, 9), (6, 2, 3))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_have_rounded_factors_and_results_that_are_not(name: str) -> None:
    """Forward and backward, against float64 products of factors rounded in NumPy. A bias is no factor."""
    call, shapes = PRODUCTS[name]
    given = [drawn(*shape) for shape in shapes]
    tensors = [torch.from_numpy(x).requires_grad_() for x in given]
    with rounding_factors():
        made = call(*tensors)
        weight = torch.from_numpy(drawn(*made.shape, seed=1))
        made.backward(weight)

    def exact(*factors: bool) -> tuple[Tensor, list[Tensor]]:
        """Result and gradients in float64, with each factor rounded if its flag in `factors` is set."""
        leaves = [
            torch.from_numpy(to_tf32(x) if narrow else x).double().requires_grad_()
            for x, narrow in zip(given, factors, strict=False)
        ]
        result = call(*leaves)
        result.backward(torch.from_numpy(to_tf32(weight.numpy())).double())
        return result.detach(), [leaf.grad for leaf in leaves if leaf.grad is not None]

    expected, gradients = exact(True, True, False)
    assert torch.allclose(made.double(), expected, rtol=1e-6, atol=2e-6)
    assert not torch.allclose(made.double(), exact(False, False, False)[0], rtol=1e-6, atol=2e-6)
    for tensor, gradient in zip(tensors[:2], gradients[:2], strict=True):
        assert tensor.grad is not None
        assert torch.allclose(tensor.grad.double(), gradient, rtol=1e-6, atol=2e-6)


def test_all_else_is_as_it_was() -> None:
    """Depthwise convolutions are unchanged too: torch computes them in separate kernels."""
    x, image, kernel = (torch.from_numpy(drawn(*shape)) for shape in ((4, 16), (2, 3, 6, 6), (6, 1, 3, 3)))

    def depthwise(x: Tensor, k: Tensor) -> Tensor:
        return F.conv2d(x, k, groups=3)

    plain = depthwise(image, kernel)
    with rounding_factors():
        assert torch.equal(x.softmax(-1), x.softmax(-1)) and torch.equal(x * x, torch.from_numpy(drawn(4, 16) ** 2))
        assert torch.equal(F.linear(x.double(), x.double()), x.double() @ x.double().T)
        assert torch.equal(depthwise(image, kernel), plain)
        inside = F.linear(x, x)
    assert not torch.equal(inside, F.linear(x, x))


def bounds(operator: str, given: list[Floats], attributes: dict[str, Any]) -> Bounded:
    """Bounds the result with TF32 factors and float32 summation in any order."""
    instance = instantiate(LIBRARY.operators[operator], [Shape(x.shape) for x in given], attributes)
    wide = [x.astype(np.float64) for x in given]
    inputs = {
        operand.name: Bounded(x, UNIT_OF_TF32 * np.abs(x)) for operand, x in zip(instance.inputs, wide, strict=True)
    }
    sizes = {operand.name: np.abs(x) for operand, x in zip(instance.inputs, wide, strict=True)}
    (output,) = instance.outputs
    found = evaluate_bounded(instance, inputs, LIBRARY)[output.name]
    magnitude = evaluate_bounded(instance, sizes, LIBRARY)[output.name].value
    return Bounded(found.value, found.error + SUMMED * magnitude)


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes"),
    [
        ("linear", ((40, 3), (50, 3)), {}),
        ("matmul", ((40, 6), (6, 50)), {}),
        ("conv2d", ((2, 1, 12, 12), (8, 1, 2, 2)), {}),
    ],
)
def test_a_bound_holds_for_tf32_and_not_for_bf16(
    operator: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any]
) -> None:
    """The bound covers the worst case. bf16 factors, 8 times as coarse, exceed it in sums of few terms.

    In long sums errors of both signs cancel, and no such bound distinguishes the two types.
    """
    given = [drawn(*shape) for shape in shapes]
    call = {"linear": F.linear, "matmul": torch.matmul, "conv2d": F.conv2d}[operator]
    bound = bounds(operator, given, attributes)

    def excess(bits: int) -> float:
        """The largest ratio of an error to its bound."""
        made = call(*(torch.from_numpy(to_bits(x, bits)) for x in given)).double().numpy()
        return float(np.max(np.abs(made - bound.value) / bound.error))

    with rounding_factors():
        emulated = call(*map(torch.from_numpy, given)).double().numpy()
    assert np.all(np.abs(emulated - bound.value) <= bound.error)
    assert 0.3 < excess(10) <= 1 < excess(7)
