"""Operators that a user declares have kernels, forwards and backwards, without anything else being written."""

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
"""
CASES = {
    "gated": [(3, 5, 14)],
    "direction": [(4, 3, 9)],
    "near_attention": [(2, 40, 6), (2, 50, 6), (2, 50, 3)],
}


@pytest.fixture(scope="module")
def declared() -> Library:
    return library_with(OPERATORS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_a_user_runs_as_kernels(
    name: str, dtype: torch.dtype, declared: Library, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    instance = instantiate(declared.operators[name], [Shape(shape) for shape in CASES[name]], {})
    operator = fused(instance, declared)
    assert operator is not None
    inputs = [torch.from_numpy(random.standard_normal(shape)).to(dtype) for shape in CASES[name]]
    shapes = [instance.shape(output) for output in instance.outputs]
    cotangents = [torch.from_numpy(random.standard_normal(shape)).to(dtype) for shape in shapes]
    found = run(kernel_module(operator, tmp_path), operator, inputs, cotangents)
    wanted = expected(operator, inputs, cotangents, declared)
    for made, exact in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        assert error(made, exact) <= (1e-12 if dtype == torch.float64 else 1e-5)
