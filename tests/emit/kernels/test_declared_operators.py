"""A user-declared operator gets kernels, forwards and backwards, without any further text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.graph.overlapping import library_with
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library

from .kernel_runs import error, expected, fused, kernel_module, run

OPERATORS = """
fn bump(x) = x * exp(-(x * x))
  derivative x: (1 - 2 * x * x) * exp(-(x * x))

## A gate of one half of each row for the other.
op gated(x: [b.., (h i)]; slope = 2) -> y: [b.., i]
  where h == 2
  y[b.., i] = x[b.., 0, i] * bump(slope * x[b.., 1, i])

## Rows of length one, and how long they were.
op direction(x: [b.., c]) -> y: [b.., c], length: [b..]
  square[b..] = sum(c) x[b.., c] * x[b.., c]
  length[b..] = sqrt(square[b..] + 0.01)
  y[b.., c] = x[b.., c] / length[b..]

## Attention in which a key counts less the farther it is from the query.
op near_attention(q: [b, s, k], key: [b, t, k], value: [b, t, v]; decay = 0.3) -> y: [b, s, v]
  d[b, s, t] = (sum(k) q[b, s, k] * key[b, t, k]) - decay * abs(s - t)
  x[b, s, t] = select(t <= s, d[b, s, t], -inf)
  m[b, s] = max(t) x[b, s, t]
  e[b, s, t] = exp(x[b, s, t] - m[b, s])
  z[b, s] = sum(t) e[b, s, t]
  y[b, s, v] = sum(t) e[b, s, t] / z[b, s] * value[b, t, v]

## Attention to the last 40 keys.
op strip_attention(q: [b, s, k], key: [b, t, k], value: [b, t, v]) -> y: [b, s, v]
  d[b, s, t] = sum(k) q[b, s, k] * key[b, t, k]
  c[b, s, t] = select(t <= s, d[b, s, t], -inf)
  x[b, s, t] = select(s - t < 40, c[b, s, t], -inf)
  m[b, s] = max(t) x[b, s, t]
  e[b, s, t] = exp(x[b, s, t] - m[b, s])
  z[b, s] = sum(t) e[b, s, t]
  y[b, s, v] = sum(t) e[b, s, t] / z[b, s] * value[b, t, v]

## Attention to the keys around a query, more of them before it.
op around_attention(q: [b, s, k], key: [b, t, k], value: [b, t, v]; before = 33, after = 2) -> y: [b, s, v]
  d[b, s, t] = sum(k) q[b, s, k] * key[b, t, k]
  c[b, s, t] = select(s + after >= t, d[b, s, t], -inf)
  x[b, s, t] = select(t > s - before, c[b, s, t], -inf)
  m[b, s] = max(t) x[b, s, t]
  e[b, s, t] = exp(x[b, s, t] - m[b, s])
  z[b, s] = sum(t) e[b, s, t]
  y[b, s, v] = sum(t) e[b, s, t] / z[b, s] * value[b, t, v]

## A linear map whose result is bumped, gated and added to a residual.
op bumped_map(x: [b.., i], w: [o, i], bias: [o], gate: [b.., o], r: [b.., o]; slope = 0.5) -> y: [b.., o]
  a[b.., o] = (sum(i) x[b.., i] * w[o, i]) + bias[o]
  y[b.., o] = bump(slope * a[b.., o]) * gate[b.., o] + r[b.., o]

## The products of rows with rows, of which the first are bumped and the second scaled by column.
op bumped_products(x: [n, s, k], z: [n, t, k], c: [k]) -> y: [n, s, t]
  left[n, s, k] = bump(x[n, s, k])
  y[n, s, t] = sum(k) left[n, s, k] * z[n, t, k] * c[k] / |k|

## Groups of channels, each with a map of its own of what was kept, and how much they differ from a target.
op grouped_map(x: [b, g, i], w: [g, i, o], keep: int<two>[b, g, i], target: [b, g, o]) -> y: [b, g, o]
  where two == 2
  kept[b, g, i] = select(keep[b, g, i] == 1, x[b, g, i], -0.1 * x[b, g, i])
  a[b, g, o] = sum(i) kept[b, g, i] * w[g, i, o]
  y[b, g, o] = bump(a[b, g, o] - target[b, g, o])
"""
CASES = {
    "gated": [(3, 5, 14)],
    "direction": [(4, 3, 9)],
    "near_attention": [(2, 40, 6), (2, 50, 6), (2, 50, 3)],
    "strip_attention": [(2, 150, 6), (2, 150, 6), (2, 150, 3)],
    "around_attention": [(1, 150, 6), (1, 140, 6), (1, 140, 3)],
    "bumped_map": [(2, 37, 19), (23, 19), (23,), (2, 37, 23), (2, 37, 23)],
    "bumped_products": [(3, 29, 41), (3, 17, 41), (41,)],
    "grouped_map": [(31, 3, 18), (3, 18, 7), (31, 3, 18), (31, 3, 7)],
}
WHOLE = {("grouped_map", 2)}
"""Integer operands, all below 2."""
CONTRACTIONS = {"bumped_map", "bumped_products", "grouped_map"}


@pytest.fixture(scope="module")
def declared() -> Library:
    return library_with(OPERATORS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_a_user_runs_as_kernels(
    name: str, dtype: torch.dtype, declared: Library, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    given = [Shape(shape, 2) if (name, i) in WHOLE else Shape(shape) for i, shape in enumerate(CASES[name])]
    instance = instantiate(declared.operators[name], given, {})
    operator = fused(instance, declared)
    assert operator is not None and operator.contracts == (name in CONTRACTIONS)
    assert len(operator.forward.steps) == 1
    inputs = [
        torch.from_numpy(random.integers(0, 2, shape))
        if (name, i) in WHOLE
        else torch.from_numpy(random.standard_normal(shape)).to(dtype)
        for i, shape in enumerate(CASES[name])
    ]
    shapes = [instance.shape(output) for output in instance.outputs]
    cotangents = [torch.from_numpy(random.standard_normal(shape)).to(dtype) for shape in shapes]
    found = run(kernel_module(operator, tmp_path), operator, inputs, cotangents)
    wanted = expected(operator, inputs, cotangents, declared)
    for made, exact in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        assert error(made, exact) <= (1e-12 if dtype == torch.float64 else 1e-5)


GUARDED = """
## Every position twice as far, halves between them.
op stretched(x: [b.., c]) -> y: [b.., d]
  where d == 2 * c
  y[b.., d] = sum(c) [2 * c == d] * x[b.., c] + 0.5 * x[b.., d // 2]

## The element to the right, and nothing at the end.
op from_the_right(x: [b.., c]) -> y: [b.., c]
  y[b.., c] = exp(sum(k) [k == c + 1] * x[b.., k])

## The rows of a map that stand to the left, times a matrix.
op map_of_the_left(x: [b, i], w: [o, i]) -> y: [b, o]
  z[b, i] = sum(k) [k == i - 1] * x[b, k]
  y[b, o] = relu(sum(i) z[b, i] * w[o, i])
"""
GUARDED_CASES = {"stretched": [(3, 5)], "from_the_right": [(3, 5)], "map_of_the_left": [(37, 19), (23, 19)]}


@pytest.mark.parametrize("name", GUARDED_CASES)
def test_what_is_not_looked_up_everywhere_is_left_to_operations_of_torch(name: str) -> None:
    library = library_with(GUARDED)
    instance = instantiate(library.operators[name], [Shape(shape) for shape in GUARDED_CASES[name]], {})
    assert fused(instance, library) is None
