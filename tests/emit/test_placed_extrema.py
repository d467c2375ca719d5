"""Extrema over segments selected by data, in torch: values and gradients against dense ones, without dense tensors.

Inputs are small whole numbers, so many are equal. Equal extrema share the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.layout_typing import TypedOperator, type_operator
from unity_dsl.graph.local_lowering import local_execution
from unity_dsl.index.cost.work import backward_work, work
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.instantiate import Shape, instantiate

from ..graph.overlapping import library_with
from ..index.segment_cases import CASES, SEGMENTS, Integers, Segments
from .test_operator_text import run, tensors, text_of

LIBRARY = library_with(SEGMENTS)
SEEDS = range(4)


def operands(case: Segments, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(given.bound, size=given.shape) if isinstance(given, Integers) else rng.integers(-2, 3, given) / 2.0
        for given in case.operands
    ]


def typed(name: str, scale: int = 1) -> tuple[Instance, TypedOperator]:
    """The operator at its case's shapes, with all sizes and integer bounds `scale` times as large."""
    shapes = [
        Shape(tuple(scale * size for size in given.shape), scale * given.bound)
        if isinstance(given, Integers)
        else Shape(tuple(scale * size for size in given))
        for given in CASES[name].operands
    ]
    instance = instantiate(LIBRARY.operators[name], shapes, {})
    found = type_operator(instance, (), Mesh(()), LIBRARY)
    assert isinstance(found, TypedOperator)
    return instance, found


def gradients(result: Any, given: list[Any], cotangent: np.ndarray) -> list[np.ndarray]:
    floats = [tensor for tensor in given if tensor.is_floating_point()]
    found = torch.autograd.grad(result, floats, torch.from_numpy(cotangent))
    return [gradient.numpy() for gradient in found]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_dense_operator(name: str, seed: int) -> None:
    instance, found = typed(name)
    inputs = operands(CASES[name], seed)
    given, dense = tensors(inputs), tensors(inputs)
    (result,) = run(text_of(instance, found, LIBRARY), given, 1, training=True)
    expected = CASES[name].reference(*dense)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-14)
    (evaluated,) = evaluate(instance, inputs, LIBRARY)
    np.testing.assert_allclose(evaluated, expected.detach().numpy(), rtol=1e-12, atol=1e-14)
    cotangent = np.random.default_rng(seed + 100).standard_normal(evaluated.shape)
    wanted = gradients(expected, dense, cotangent)
    for own, other in zip(gradients(result, given, cotangent), wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-12)
    (declared,) = evaluate(adjoint(instance, LIBRARY, 0), [*inputs, cotangent], LIBRARY)
    np.testing.assert_allclose(declared, wanted[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_nothing_has_an_element_for_each_pair_of_a_segment_and_an_entry(name: str) -> None:
    """At twenty times the sizes, neither the built tensors nor the counted flops grow with the number of pairs."""
    small, _ = typed(name)
    instance, found = typed(name, 20)
    pairs = 20 ** max(len(equation.space) for equation in small.equations) * CASES[name].dense
    moves = [operand.integer_range is None for operand in instance.inputs]
    built = local_execution(instance, found, Mesh(()), LIBRARY, moves, 4)
    assert max(storage.bytes for storage in built.built) < 4 * pairs / 10
    total = work(instance).flops + backward_work(instance, moves).flops
    assert total < pairs


@pytest.mark.parametrize("kind", ["max", "min"])
def test_ties_of_many_are_counted_in_bfloat16(kind: str) -> None:
    """Each of 1,000 equal values gets a thousandth of the gradient. bfloat16 counts only to 256."""
    fill = "-inf" if kind == "max" else "inf"
    library = library_with(
        f"op best(x: [e], to: int<v>[e]) -> y: [v]\n  y[v] = {kind}(e) select(v == to[e], x[e], {fill})\n"
    )
    instance = instantiate(library.operators["best"], [Shape((1000,)), Shape((1000,), 1)], {})
    found = type_operator(instance, (), Mesh(()), library)
    assert isinstance(found, TypedOperator)
    x = torch.ones(1000, dtype=torch.bfloat16, requires_grad=True)
    (result,) = run(text_of(instance, found, library), [x, torch.zeros(1000, dtype=torch.int64)], 1, training=True)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert result.dtype == torch.bfloat16 and abs(gradient.double().sum().item() - 1) < 2**-7
