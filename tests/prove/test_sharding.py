"""Every axis that an operator may be divided along is a theorem, forward and adjoint; others are none."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.index.adjoint import adjoint
from unity_dsl.index.classify import AxisKind, classify
from unity_dsl.index.instance import Instance
from unity_dsl.index.instantiate import Shape, instantiate
from unity_dsl.prove.prove import NotProved, Proved
from unity_dsl.prove.sharding import prove_configuration

from ..index.declare import declare
from ..index.test_adjoint import ALL
from .cases import library

SEED = 2
SLOW_ADJOINTS = {
    *("layer_norm", "masked_cross_entropy", "cross_entropy"),
    *("full_attention", "causal_attention", "masked_attention"),
}
"""Their adjoints take seconds at rank 2 and 3; `test_the_adjoint_of_layer_norm` does one at rank 1."""


def case(name: str) -> Instance:
    return ALL[name](np.random.default_rng(SEED)).instance(library().operators[name])


def allowed(instance: Instance) -> list[str]:
    found = classify(instance, library())
    return [axis for axis, entry in found.items() if entry.kind is not AxisKind.BLOCKED]


@pytest.mark.parametrize("name", ALL)
def test_every_axis_that_may_be_divided_is_proved(name: str) -> None:
    instance = case(name)
    answers = {axis: prove_configuration(instance, axis, library()) for axis in instance.axes}
    assert all(isinstance(answers[axis], Proved) for axis in allowed(instance)), answers
    # What no operand has is computed from copies: a slice of it is provable also where it is not programmed.
    held = {axis for operand in instance.inputs for axis in operand.axes}
    blocked = held & set(answers) - set(allowed(instance))
    assert all(isinstance(answers[axis], NotProved) for axis in blocked), answers


@pytest.mark.parametrize("name", sorted(set(ALL) - SLOW_ADJOINTS))
def test_every_axis_of_an_adjoint_that_may_be_divided_is_proved(name: str) -> None:
    forward = case(name)
    for position, operand in enumerate(forward.inputs):
        if operand.integer_range is None:
            instance = adjoint(forward, library(), position)
            answers = {axis: prove_configuration(instance, axis, library()) for axis in allowed(instance)}
            assert all(isinstance(answer, Proved) for answer in answers.values()), answers


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_adjoint_of_layer_norm(position: int) -> None:
    shapes = [Shape((3, 4)), Shape((4,)), Shape((4,))]
    forward = instantiate(library().operators["layer_norm"], shapes, {})
    instance = adjoint(forward, library(), position)
    for axis in allowed(instance):
        assert isinstance(prove_configuration(instance, axis, library()), Proved), axis


@pytest.mark.parametrize(
    ("text", "shapes", "axis"),
    [
        ("op f(x: [a]) -> y: [a]\n  y[i] = x[i + 1 else 0]\n", [(6,)], "a"),
        ("op f(x: [a]) -> y: [a]\n  y[i] = x[|a| - 1 - i]\n", [(6,)], "a"),
        ("op f(x: [a]) -> y: [a]\n  y[i] = x[i] - x[0]\n", [(6,)], "a"),
        ("op f(x: [a, b]) -> y: [b]\n  y[j] = x[0, j]\n", [(6, 4)], "a"),
        ("op f(x: [a, b]) -> y: [a]\n  where a == b\n  y[i] = x[i, i]\n", [(6, 6)], "a"),
        ("op f(x: [a]) -> y: [a, c]\n  where c == a\n  y[i, j] = x[i] * x[j]\n", [(6,)], "a"),
    ],
    ids=["window", "reversed", "first", "constant", "diagonal", "two_roles"],
)
def test_an_axis_that_is_not_read_at_itself_is_not_proved(text: str, shapes: list[tuple[int, ...]], axis: str) -> None:
    found = declare(text)
    (operator,) = found.operators.values()
    instance = instantiate(operator, [Shape(shape) for shape in shapes], {})
    assert isinstance(prove_configuration(instance, axis, found), NotProved)


def test_the_degree_and_the_size_are_those_of_the_whole_axis() -> None:
    """A mean over a divided axis divides by the global size, and a mask knows the global position."""
    for text in (
        "op f(x: [a]) -> y: []\n  y[] = sum(a) x[a] / |a|\n",
        "op f(x: [a, b]) -> y: [a, b]\n  y[a, b] = [b <= a] * x[a, b] + a\n",
    ):
        found = declare(text)
        (operator,) = found.operators.values()
        instance = instantiate(operator, [Shape((6, 4)[: len(operator.inputs[0].dims)])], {})
        assert isinstance(prove_configuration(instance, "a", found), Proved)
