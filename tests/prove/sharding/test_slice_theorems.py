"""Every axis along which an operator may be sharded is proved, forward and adjoint; other axes are not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.index.declare import declare
from tests.index.gradients.test_adjoint import ALL
from tests.sampling import of_the_day
from unity_dsl.index.axes.axis_classes import AxisKind, classify
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.equations.term import free_axes, reads
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import NotProved, Proved
from unity_dsl.prove.sharding.slice_theorems import prove_configuration, prove_linearity
from unity_dsl.prove.sharding.theorem_subject import generalise
from unity_dsl.syntax.ast import Name
from unity_dsl.syntax.span import Source

from ..cases import library

SEED = 2
SLOW_ADJOINTS = {
    *("layer_norm", "masked_cross_entropy", "cross_entropy"),
    *("full_attention", "causal_attention", "masked_attention", "padded_attention"),
}
"""Their adjoints take seconds at rank 2 and 3; `test_the_adjoint_of_layer_norm` does one at rank 1."""


def case(name: str) -> Instance:
    return ALL[name](np.random.default_rng(SEED)).instance(library().operators[name])


def allowed(instance: Instance) -> list[str]:
    found = classify(instance, library())
    return [axis for axis, entry in found.items() if entry.kind not in (AxisKind.BLOCKED, AxisKind.DECLARED)]


def moving(instance: Instance) -> Iterator[str]:
    """Axes such as a kernel's: their own tensors are read at exactly the axis, another tensor at a sum with it."""
    for axis in instance.axes:
        bare, beside = [], []
        for equation in instance.equations:
            for read in reads(equation.value):
                own = instance.operand(read.tensor)
                bare += [read.index[place] == Name(axis) for place, dim in enumerate(own.dims) if axis in dim]
                beside += [axis in free_axes(index) for index in read.index if axis not in own.axes]
        if all(bare) and any(beside):
            yield axis


@pytest.mark.parametrize("name", of_the_day(list(ALL), 45))
def test_every_axis_that_may_be_divided_is_proved(name: str) -> None:
    instance = case(name)
    answers = {axis: prove_configuration(instance, axis, library()) for axis in instance.axes}
    assert all(isinstance(answers[axis], Proved) for axis in allowed(instance)), answers
    # An axis that no operand or only a kernel has is computed from replicated operands: its slices are provable even if
    # no such sharding is emitted.
    held = {axis for operand in instance.inputs for axis in operand.axes} - set(moving(instance))
    blocked = held & set(answers) - set(allowed(instance))
    assert all(isinstance(answers[axis], NotProved) for axis in blocked), answers


@pytest.mark.parametrize("name", of_the_day(sorted(set(ALL) - SLOW_ADJOINTS), 30))
def test_every_axis_of_an_adjoint_that_may_be_divided_is_proved(name: str) -> None:
    forward = case(name)
    for position, operand in enumerate(forward.inputs):
        if operand.integer_range is None and not forward.whole:
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
    """A mean over a sharded axis divides by the global size, and a mask uses the global position."""
    for text in (
        "op f(x: [a]) -> y: []\n  y[] = sum(a) x[a] / |a|\n",
        "op f(x: [a, b]) -> y: [a, b]\n  y[a, b] = [b <= a] * x[a, b] + a\n",
    ):
        found = declare(text)
        (operator,) = found.operators.values()
        instance = instantiate(operator, [Shape((6, 4)[: len(operator.inputs[0].dims)])], {})
        assert isinstance(prove_configuration(instance, "a", found), Proved)


@pytest.mark.parametrize(
    "body, axis, proved",
    [
        ("p[g, s] = sum(t) [t < s] * [i[g, t] == i[g, s]]", "g", True),
        ("p[g, s] = sum(t) [t < s] * [i[g, t] == i[g, s]]", "s", False),
        ("p[g, s] = [i[g, s] > 2] * s", "s", True),
        ("p[g, s] = 2 * i[g, s] + g", "s", True),
        ("p[g, s] = sum(h) [i[h, s] == i[g, s]]", "g", False),
        ("p[g, s] = i[0, s]", "g", False),
    ],
)
def test_integers_that_are_computed(body: str, axis: str, proved: bool) -> None:
    """Integer results are compared as numbers, however they are computed."""
    operator = declare(f"op f(i: int<v>[g, s]) -> p: int<n>[g, s]\n  where n == s * g + 2 * v\n  {body}\n").operators[
        "f"
    ]
    answer = prove_configuration(instantiate(operator, [Shape((4, 6), 5)], {}), axis, library())
    assert isinstance(answer, Proved if proved else NotProved), answer


def test_an_axis_that_integers_count_over_need_not_be_an_axis_of_an_operand() -> None:
    text = "op f(i: int<c>[n]) -> y: [n, c]\n  y[n, c] = [c == i[n]] * |c|\n"
    answer = prove_configuration(instantiate(declare(text).operators["f"], [Shape((4,), 6)], {}), "c", library())
    assert isinstance(answer, Proved)


def test_nothing_is_proved_of_an_extern_operator() -> None:
    instance = instantiate(library().operators["top_k"], [Shape((4, 6))], {"count": 2})
    for axis in ("b0", "c"):
        answer = prove_configuration(instance, axis, library())
        assert isinstance(answer, NotProved) and "extern" in answer.reason


# ---------------------------------------------------------------------------------------------- functions as symbols

PIECES = " + ".join(f"{n + 1} * maximum(t - {n - 5}, 0) * maximum(t - {n - 5}, 0)" for n in range(20))
SLOPES = " + ".join(f"{2 * (n + 1)} * maximum(t - {n - 5}, 0)" for n in range(20))
SPLINES = f"""\
fn spline(t) = {PIECES}
  derivative t: {SLOPES}

op splines(x: [b.., i], w: [o, i], c: [g]) -> y: [b.., o]
  y[b.., o] = sum(i, g) w[o, i] * spline(x[b.., i] * c[g]) * spline(x[b.., i])
"""


def test_a_function_of_many_pieces_is_a_symbol_where_its_definition_is_not_needed() -> None:
    found = library_of([*library_sources(), Source("splines.uop", SPLINES)])
    instance = instantiate(found.operators["splines"], [Shape((4, 6)), Shape((8, 6)), Shape((2,))], {})
    for axis in ("b0", "o", "i", "g"):
        assert isinstance(prove_configuration(instance, axis, found), Proved), axis


def test_a_definition_is_written_out_where_it_is_needed() -> None:
    text = "fn twice(t) = t + t\n  derivative t: 2\n\nop doubled(x: [b..]) -> y: [b..]\n  y[b..] = twice(x[b..])\n"
    found = library_of([*library_sources(), Source("twice.uop", text)])
    instance = instantiate(found.operators["doubled"], [Shape((4,))], {})
    assert isinstance(prove_linearity(generalise(instance), (0,), found), Proved)


# Each compares or divides by a term that cancels in a normal form but has no value at some elements of `x`.
HIDDEN = {
    "a_comparison": "x[b..] + x[b..] * [log(x[b..]) - log(x[b..]) + 1 > 0]",
    "a_quotient": "x[b..] + x[b..] * [0 * (1 / x[b..]) + 1 > 0]",
    "an_inequality": "x[b..] * [sqrt(x[b..]) - sqrt(x[b..]) != 0]",
    "a_branch": "select(log(x[b..]) - log(x[b..]) + 1 > 0, x[b..], 2 * x[b..])",
    "a_branch_in_a_comparison": "x[b..] * [select(w[b..] > 0, 0 / x[b..], 0) > 0 - 1]",
}


def declared(text: str, operands: int) -> tuple[Library, Instance]:
    """The library of an operator, and the operator's instance with operands of one shape."""
    found = declare(text)
    (operator,) = found.operators.values()
    return found, instantiate(operator, [Shape((4,))] * operands, {})


@pytest.mark.parametrize("name", HIDDEN)
def test_what_cancels_does_not_make_a_comparison_linear(name: str) -> None:
    """By its normal form alone each is `x` times a number, but it is not additive for x of both signs."""
    text = f"op hidden(x: [b..], w: [b..]) -> y: [b..]\n  y[b..] = {HIDDEN[name]}\n"
    known, instance = declared(text, 2)
    assert isinstance(prove_linearity(generalise(instance), (0,), known), NotProved)
    assert isinstance(prove_configuration(instance, "b0", known), Proved)
    # If the term depends only on another operand, the operator stays linear in `x`.
    other = HIDDEN[name].replace("(x[b..])", "(w[b..])").replace("/ x[b..]", "/ w[b..]")
    if "select(log" not in other:
        known, instance = declared(text.replace(HIDDEN[name], other), 2)
        assert isinstance(prove_linearity(generalise(instance), (0,), known), Proved)


def test_a_device_must_have_a_value_wherever_the_operator_has() -> None:
    """A partial sum's `x` may be 0 on a device although `x` is not: 1 / x cancels, but has no value there."""
    text = "op quotient(x: [b..]) -> y: [b..]\n  y[b..] = x[b..] + (1 / x[b..] - 1 / x[b..])\n"
    known, instance = declared(text, 1)
    answer = prove_linearity(generalise(instance), (0,), known)
    assert isinstance(answer, NotProved) and answer.obligation == "defined"
    assert isinstance(prove_configuration(instance, "b0", known), Proved)


@pytest.mark.parametrize("condition", ["c == 2 * h", "2 * h == c", "c == h * 2"])
@pytest.mark.parametrize(
    ("body", "axis", "proved"),
    [
        ("y[b, i] = x[b, i] * x[b, i + |h|]", "b", True),
        ("y[b, i] = x[b, i] * x[0, i + |h|]", "b", False),
        ("y[b, i] = x[b, i] + 0 * x[b, i + |h|]", "c", False),
    ],
)
def test_a_dimension_that_is_a_multiple_of_an_unknown_size(condition: str, body: str, axis: str, proved: bool) -> None:
    """The size is written as a multiple of `h`, because nothing else implies that it is divisible by two."""
    operator = declare(f"op gated(x: [b, c]) -> y: [b, h]\n  where {condition}\n  {body}\n").operators["gated"]
    answer = prove_configuration(instantiate(operator, [Shape((6, 4))], {}), axis, library())
    assert isinstance(answer, Proved) == proved, answer
