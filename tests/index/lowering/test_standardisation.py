"""Detection of standardised values in equations: which are found, and that the equations with them are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.graph.overlapping import library_with
from unity_dsl.index.equations.instance import Equation, Instance
from unity_dsl.index.equations.term import call, dim_index, reads
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.lowering.standardisation import Standardisation, standardisations
from unity_dsl.syntax.ast import Read

OWN = """
op whole(x: [a, b]) -> y: [a, b]
  m[] = sum(a, b) x[a, b] / (|a| * |b|)
  v[] = sum(a, b) (x[a, b] - m[]) * (x[a, b] - m[]) / |a| / |b|
  y[a, b] = (x[a, b] - m[]) / sqrt(0.001 + v[])

op instance_norm(x: [n, c, s..], gain: [c]) -> y: [n, c, s..]
  m[n, c] = sum(s..) x[n, c, s..] / |s..|
  d[n, c, s..] = x[n, c, s..] - m[n, c]
  v[n, c] = sum(s..) d[n, c, s..] * d[n, c, s..] / |s..|
  y[n, c, s..] = gain[c] * rsqrt(v[n, c] + 1e-3) * d[n, c, s..] * 2 + d[n, c, s..]

op unbiased(x: [a, b]) -> y: [a, b]
  m[a] = sum(b) x[a, b] / |b|
  d[a, b] = x[a, b] - m[a]
  v[a] = sum(b) d[a, b] * d[a, b] / (|b| - 1)
  y[a, b] = d[a, b] * rsqrt(v[a])

op of_four(x: [a, b]) -> y: [a, b]
  m[a] = sum(b) x[a, b] / 4
  d[a, b] = x[a, b] - m[a]
  v[a] = sum(b) d[a, b] * d[a, b] / 4
  y[a, b] = d[a, b] * rsqrt(v[a])

op other_source(x: [a, b], z: [a, b]) -> y: [a, b]
  m[a] = sum(b) z[a, b] / |b|
  d[a, b] = x[a, b] - m[a]
  v[a] = sum(b) d[a, b] * d[a, b] / |b|
  y[a, b] = d[a, b] * rsqrt(v[a])

op shifted(x: [a, b]) -> y: [a, b]
  m[a] = sum(b) x[a, b] / |b|
  d[a, b] = x[a, b] - m[a]
  v[a] = sum(b) d[a, b] * x[a, b] / |b|
  y[a, b] = d[a, b] * rsqrt(v[a])

op apart(x: [a, b, c]) -> y: [a, b, c]
  m[a, c] = sum(b) x[a, b, c] / |b|
  d[a, b, c] = x[a, b, c] - m[a, c]
  v[a, c] = sum(b) d[a, b, c] * d[a, b, c] / |b|
  y[a, b, c] = d[a, b, c] * rsqrt(v[a, c] + 1)
"""
LIBRARY = library_with(OWN)
C, S = (4,), (3, 4, 5)
FOUND: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, float], set[str], bool]] = {
    "batch_norm": (((6, 4, 5), C, C, C, C), {}, {"d"}, True),
    "layer_norm": ((S, (5,), (5,)), {}, {"d", "r"}, False),
    "group_norm": (((3, 4, 5), C, C), {"groups": 2}, {"d", "r"}, False),
    "layer_norm_linear": ((S, (5,), (5,), (7, 5)), {}, {"d", "r"}, False),
    "add_layer_norm": ((S, S, (5,), (5,)), {}, {"d", "r"}, False),
    "whole": (((3, 4),), {}, set(), False),
    "instance_norm": ((S, C), {}, set(), False),
}
"""Shapes and attributes; the equations that become unread, and whether the rest is an affine map."""
OTHERS: dict[str, tuple[tuple[int, ...], ...]] = {
    "softmax": (S,),
    "rms_norm": (S, (5,)),
    "unbiased": ((3, 4),),
    "of_four": ((3, 4),),
    "other_source": ((3, 4), (3, 4)),
    "shifted": ((3, 4),),
    "apart": (S,),
}


def make(name: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, float]) -> Instance:
    return instantiate(LIBRARY.operators[name], [Shape(shape) for shape in shapes], attributes)


def with_result(instance: Instance, group: Standardisation) -> Instance:
    """The instance with the standardised value in an equation of its own."""
    mean, variance = (instance.equations[number].target for number in (group.mean, group.variance))
    m, v = (Read(operand.name, tuple(map(dim_index, operand.dims))) for operand in (mean, variance))
    value = call("*", call("-", group.source, m), call("rsqrt", call("+", v, group.eps)))
    made = Equation(group.result, value)
    found: list[Equation] = []
    for number, equation in enumerate(instance.equations):
        if number not in group.unread or number < group.variance:
            found.append(replace(equation, value=group.values.get(number, equation.value)))
        found += [made] if number == group.variance else []
    return replace(instance, equations=tuple(found))


@pytest.mark.parametrize("name", FOUND)
def test_equations_are_the_same_with_what_is_found(name: str) -> None:
    shapes, attributes, unread, affine = FOUND[name]
    instance = make(name, shapes, attributes)
    (group,) = standardisations(instance)
    assert {instance.equations[number].target.name for number in group.unread} == unread
    assert (group.scaled is not None) == affine
    random = np.random.default_rng(0)
    inputs = [random.uniform(0.1, 2, shape) for shape in shapes]
    again = evaluate(with_result(instance, group), inputs, LIBRARY)
    for mine, expected in zip(again, evaluate(instance, inputs, LIBRARY), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-12)
    kept = [
        group.values.get(number, equation.value)
        for number, equation in enumerate(instance.equations)
        if number not in (group.mean, group.variance, *group.unread)
    ]
    left = {instance.equations[number].target.name for number in group.unread}
    assert not left & {read.tensor for value in kept for read in reads(value)}


@pytest.mark.parametrize("name", OTHERS)
def test_other_equations_are_left(name: str) -> None:
    assert not standardisations(make(name, OTHERS[name], {}))
