"""Dimensions of several axes in a header: values, gradients, derived sizes, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unity_dsl.index.axes.axis_classes import AxisKind, classify, local_native
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.instantiation.representative import representative
from unity_dsl.syntax.diagnostic import InputError

from ..declare import declare, operator

CONV = """
op conv(x: [n, (g c), h], k: [(g o), c, r]; groups = 1) -> y: [n, (g o), p]
  where g == groups, p == h - r + 1
  y[n, g, o, p] = sum(c, r) x[n, g, c, p + r] * k[g, o, c, r]
  torch: F.conv1d(x, k, groups=|g|)
"""
HEADS = """
op scores(q: [s, (kv g), d], k: [t, kv, d]) -> y: [(kv g), s, t]
  y[kv, g, s, t] = sum(d) q[s, kv, g, d] * k[t, kv, d]
"""
NORM = """
op norm(x: [n, (g k), s..]; groups) -> y: [n, (g k), s..]
  where g == groups
  m[n, g] = sum(k, s..) x[n, g, k, s..] / (|k| * |s..|)
  y[n, g, k, s..] = x[n, g, k, s..] - m[n, g]
"""
OUTSIDE = "op f(x: [(a b)], z: [a]) -> y: [a]\n  y[a] = x[a, |b|] * z[a]\n"
SWAP = """
op swap(x: [b.., (two k)]) -> y: [b.., (two k)]
  where two == 2
  y[b.., t, k] = x[b.., 1 - t, k]
"""


def made(text: str, *shapes: tuple[int, ...], **attributes: int) -> Instance:
    return instantiate(operator(text), [Shape(shape) for shape in shapes], attributes)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_a_grouped_convolution_is_that_of_torch(groups: int) -> None:
    random = np.random.default_rng(groups)
    x, k = random.normal(size=(2, 6, 7)), random.normal(size=(12, 6 // groups, 3))
    library = declare(CONV)
    instance = made(CONV, x.shape, k.shape, groups=groups)
    tensors = [torch.tensor(value, requires_grad=True) for value in (x, k)]
    result = F.conv1d(*tensors, groups=groups)
    (found,) = evaluate(instance, [x, k], library)
    np.testing.assert_allclose(found, result.detach().numpy(), atol=1e-12)
    cotangent = random.normal(size=found.shape)
    result.backward(torch.tensor(cotangent))
    for wrt, tensor in enumerate(tensors):
        assert tensor.grad is not None
        (gradient,) = evaluate(adjoint(instance, library, wrt), [x, k, cotangent], library)
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize(("heads", "groups"), [(1, 4), (2, 2), (4, 1)])
def test_an_axis_follows_from_another_operand(heads: int, groups: int) -> None:
    random = np.random.default_rng(heads)
    q, k = random.normal(size=(3, heads * groups, 5)), random.normal(size=(4, heads, 5))
    instance = made(HEADS, q.shape, k.shape)
    assert (instance.sizes["kv"], instance.sizes["g"]) == (heads, groups)
    (found,) = evaluate(instance, [q, k], declare(HEADS))
    np.testing.assert_allclose(found, np.einsum("shd,thd->hst", q, np.repeat(k, groups, axis=1)), atol=1e-12)


@pytest.mark.parametrize("spatial", [(), (3,), (2, 5)])
def test_beside_a_rest_group(spatial: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=(2, 6, *spatial))
    (found,) = evaluate(made(NORM, x.shape, groups=3), [x], declare(NORM))
    parts = x.reshape(2, 3, -1)
    np.testing.assert_allclose(found, (parts - parts.mean(2, keepdims=True)).reshape(x.shape), atol=1e-12)


def test_an_axis_may_be_read_at_another_index() -> None:
    x = np.arange(12.0).reshape(2, 6)
    (found,) = evaluate(made(SWAP, x.shape), [x], declare(SWAP))
    np.testing.assert_array_equal(found, np.roll(x, 3, axis=1))


def test_axes_are_classified_one_by_one_and_the_native_call_follows_the_groups() -> None:
    library = declare(CONV)
    instance = made(CONV, (2, 6, 7), (12, 3, 3), groups=2)
    kinds = {name: entry.kind for name, entry in classify(instance, library).items()}
    assert kinds["g"] == kinds["o"] == kinds["n"] == AxisKind.MAPPED and kinds["c"] == AxisKind.SUMMED
    assert all(local_native(instance, library, (axis,)) for axis in "ngoc")


def test_the_representative_has_groups() -> None:
    sizes = representative(operator(CONV)).instance.sizes
    assert min(sizes["g"], sizes["o"], sizes["c"]) > 1


@pytest.mark.parametrize(
    ("text", "shapes", "attributes", "code", "words"),
    [
        (CONV, [(2, 5, 7), (4, 2, 3)], {"groups": 2}, "E122", "is not g = 2 * c = 2"),
        (CONV, [(2, 6, 7), (5, 3, 3)], {"groups": 2}, "E122", "5 is no multiple of g = 2"),
        (CONV, [(2, 6), (4, 3, 3)], {"groups": 2}, "E121", "`x: [n, (g c), h]` does not fit shape [2, 6]"),
        (HEADS, [(3, 4, 5), (4, 3, 5)], {}, "E122", "4 is no multiple of kv = 3"),
        ("op f(x: [(a b)]) -> y: [a]\n  y[a] = sum(b) x[a, b]\n", [(4,)], {}, "E127", "the size `a`"),
        (
            "op f(x: [(a b)], z: [a]) -> y: [a]\n  y[a] = x[a, |b|] * z[a]\n",
            [(4,), (2,)],
            {},
            "E128",
            "2 positions of `b`",
        ),
        (
            "op f(x: [(a b)], z: [a]) -> y: [a]\n  y[a] = x[a, 2 else 0] * z[a]\n",
            [(4,), (2,)],
            {},
            "E128",
            "2 positions of `b`",
        ),
    ],
    ids=["indivisible", "multiple", "rank", "operand", "unknown", "outside", "filled"],
)
def test_what_does_not_fit_is_told(
    text: str, shapes: list[tuple[int, ...]], attributes: dict[str, int], code: str, words: str
) -> None:
    with pytest.raises(InputError) as error:
        made(text, *shapes, **attributes)
    assert (error.value.diagnostic.code, words in error.value.diagnostic.message) == (code, True), error.value
