"""Transposed convolutions written as sums of products: the native calls that they become, and what these compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.sampling import SAMPLE
from unity_dsl.index.cost.kernels import equation_kernels
from unity_dsl.index.cost.lowering_class import LoweringClass, lowering_class
from unity_dsl.index.cost.work import backward_work, work
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.index.lowering.division import Division
from unity_dsl.index.lowering.operator_lowering import lower_equations
from unity_dsl.profiling.operator_run import State, operator_function

from ..declare import declare

ONE = """op up(x: [n, i, h], k: [i, o, r]; stride, pad, dilation, more) -> y: [n, o, p]
  where p == (h - 1) * stride - 2 * pad + dilation * (r - 1) + more + 1
  y[n, o, p] = sum(i, h, r) [{}] * x[n, i, h] * k[i, o, r]
"""
GUARDS = (
    "p + pad == h * stride + r * dilation",
    "h * stride + r * dilation == p + pad",
    "p == h * stride + r * dilation - pad",
    "p + pad - r * dilation == stride * h",
    "p - h * stride == dilation * r - pad",
    "0 == r * dilation + h * stride - pad - p",
)
"""The same condition, solved for other terms."""
TWO = """op up(x: [n, g, h, w, i], k: [o, r, g, s, i], gain: [i]; stride, pad) -> y: [p, n, q, g, o]
  where p == (h - 1) * stride - 2 * pad + r, q == (w - 1) * 2 + 3 * (s - 1) + 4
  y[p, n, q, g, o] = sum(i, h, w, r, s) [q + 1 == 2 * w + 3 * s] * [p + pad == h * stride + r] * (
      2 * gain[i] * x[n, g, h, w, i] * k[o, r, g, s, i]
  )
"""
"""Groups, other orders of dimensions, another factor, and a width that no padding of torch gives."""
THREE = """op up(x: [n, i, a, b, c], k: [i, o, r, s, t]) -> y: [n, o, p, q, u]
  where p == 2 * (a - 1) + r, q == b + s - 1, u == 3 * (c - 1) + t
  y[n, o, p, q, u] = sum(i, a, b, c, r, s, t) [p == 2 * a + r] * [q == b + s] * [u == 3 * c + t] * (
      x[n, i, a, b, c] * k[i, o, r, s, t]
  )
"""


def text(instance: Instance, library: Library) -> str:
    return str(lower_equations(instance, Division(instance.sizes), library).statements)


def assert_right(instance: Instance, library: Library, random: np.random.Generator) -> None:
    """Compares result and gradients with the statements and the derived adjoints, in float64."""
    given = [np.asarray(random.standard_normal(instance.shape(operand))) for operand in instance.inputs]
    tensors = [torch.from_numpy(part.copy()).requires_grad_() for part in given]
    zero = torch.tensor(0)
    state = State((zero, zero), torch.float64, torch.device("cpu"))
    (found,) = operator_function(instance, library, state)(*tensors)
    (expected,) = evaluate(instance, given, library)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-11, atol=1e-11)
    cotangent = np.asarray(random.standard_normal(expected.shape))
    given_back = torch.autograd.grad(found, tensors, torch.from_numpy(cotangent), allow_unused=True)
    slopes = [torch.zeros_like(x) if slope is None else slope for x, slope in zip(tensors, given_back, strict=True)]
    for place, slope in enumerate(slopes):
        (wanted,) = evaluate(adjoint(instance, library, place), [*given, cotangent], library)
        np.testing.assert_allclose(slope, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("seed", range(8 * SAMPLE, 8 * SAMPLE + 8))
def test_a_guard_in_any_form_is_torch_s_call(guard: str, seed: int) -> None:
    print(f"UNITY_SAMPLE={SAMPLE}")
    random, library = np.random.default_rng(seed), declare(ONE.format(guard))
    n, i, o, h, r, stride, dilation = (int(size) for size in random.integers(1, 5, 7))
    pad = int(random.integers(0, ((h - 1) * stride + dilation * (r - 1)) // 2 + 1))
    more = int(random.integers(0, 4))
    attributes = {"stride": stride, "pad": pad, "dilation": dilation, "more": more}
    instance = instantiate(library.operators["up"], [Shape((n, i, h)), Shape((i, o, r))], attributes)
    assert "F.conv_transpose1d" in text(instance, library)
    assert ("F.pad" in text(instance, library)) is (more >= max(stride, dilation))
    assert lowering_class(instance) is LoweringClass.WINDOW
    assert_right(instance, library, random)


@pytest.mark.parametrize("seed", range(4 * SAMPLE, 4 * SAMPLE + 4))
def test_groups_orders_factors_and_three_axes(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, g, i, o, h, w, r, s = (int(size) for size in random.integers(1, 4, 8))
    stride = int(random.integers(1, 4))
    pad = int(random.integers(0, ((h - 1) * stride + r - 1) // 2 + 1))
    library = declare(TWO)
    shapes = [Shape((n, g, h, w, i)), Shape((o, r, g, s, i)), Shape((i,))]
    instance = instantiate(library.operators["up"], shapes, {"stride": stride, "pad": pad})
    assert "F.conv_transpose2d" in text(instance, library)
    assert_right(instance, library, random)
    library = declare(THREE)
    instance = instantiate(library.operators["up"], [Shape((n, i, h, w, 2)), Shape((i, o, r, s, 2))], {})
    assert "F.conv_transpose3d" in text(instance, library)
    assert_right(instance, library, random)


@pytest.mark.parametrize(
    "body",
    [
        "sum(i, h, r) [p == h * h + r] * x[n, i, h] * k[i, o, r]",
        "sum(i, h, r) [p + i == 2 * h + r] * x[n, i, h] * k[i, o, r]",
        "sum(i, h, r) [p == 2 * h - r + |r| - 1] * x[n, i, h] * k[i, o, r]",
        "sum(i, h, r) [p == 2 * h + r] * x[n, i, h] * x[n, i, r else 0] * k[i, o, r]",
        "sum(i, h, r) [p == 2 * h + r] * [h <= r] * x[n, i, h] * k[i, o, r]",
        "sum(i, h, r) [2 * p == 2 * h + r] * x[n, i, h] * k[i, o, r]",
        "sum(i, h, r) [p == 2 * h + r] * x[n, i, h] * k[i, o, 0]",
        "sum(i, h, r) [p == 2 * h + r] * x[n, i, h]",
    ],
)
def test_other_guards_compute_what_they_say(body: str) -> None:
    library = declare(
        f"op up(x: [n, i, h], k: [i, o, r]) -> y: [n, o, p]\n  where p == 2 * (h - 1) + r\n  y[n, o, p] = {body}\n"
    )
    instance = instantiate(library.operators["up"], [Shape((2, 3, 4)), Shape((3, 2, 3))], {})
    assert_right(instance, library, np.random.default_rng(3))


def test_the_work_is_that_of_the_convolution_whose_transpose_it_is() -> None:
    library = declare(ONE.format(GUARDS[0]))
    attributes = {"stride": 2, "pad": 1, "dilation": 1, "more": 0}
    instance = instantiate(library.operators["up"], [Shape((8, 16, 32)), Shape((16, 24, 4))], attributes)
    products = 8 * 16 * 24 * 32 * 4
    assert work(instance).flops == 2 * products
    assert backward_work(instance, (True, True)).flops == 4 * products
    (kernel,) = equation_kernels(instance)
    assert kernel.product is not None
    found = kernel.product
    assert ({*found.rows}, {*found.columns}, found.inner, found.batch) == ({"n", "h"}, {"o", "r"}, ("i",), ())


def test_the_larger_tensor_is_the_image() -> None:
    library = declare(ONE.format(GUARDS[0]))
    for h, r, dilation in ((9, 3, 1), (3, 9, 2)):
        attributes = {"stride": 2, "pad": 0, "dilation": dilation, "more": 0}
        instance = instantiate(library.operators["up"], [Shape((2, 3, h)), Shape((3, 2, r))], attributes)
        assert_right(instance, library, np.random.default_rng(h))


def test_shipped_ones_are_torch_s(library: Library) -> None:
    x, k = (torch.randn(shape, dtype=torch.float64) for shape in ((2, 6, 5, 4), (6, 2, 3, 4)))
    attributes = {"stride": 3, "pad_h": 1, "pad_w": 2, "output_pad_h": 2, "output_pad_w": 1, "groups": 3, "dilation": 2}
    instance = instantiate(library.operators["conv_transpose2d"], [Shape(x.shape), Shape(k.shape)], attributes)
    (found,) = evaluate(instance, [x.numpy(), k.numpy()], library)
    np.testing.assert_allclose(found, F.conv_transpose2d(x, k, None, 3, (1, 2), (2, 1), 3, 2), rtol=1e-12, atol=1e-12)
