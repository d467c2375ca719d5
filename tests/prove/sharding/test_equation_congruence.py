"""Shardings proved by congruence: normal forms or numbers agree, and equations that are no congruence are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.index.declare import declare
from tests.index.gradients.test_adjoint import ALL
from tests.index.segment_cases import SEGMENTS
from tests.sampling import of_the_day
from unity_dsl.index.equations.instance import Instance, Operand
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.prove.answer import NotProved, Proved
from unity_dsl.prove.sharding.equation_congruence import obstacles
from unity_dsl.prove.sharding.slice_theorems import prove_by_forms, prove_configuration
from unity_dsl.prove.sharding.theorem_subject import generalise

from ..cases import library
from .test_slice_theorems import SLOW_ADJOINTS, case

DUALITY = """\
op chunk(
    x: [b, n, l, h, p], dt: [b, n, l, h], a: [h], bm: [b, n, l, k], cm: [b, n, l, k]
  ) -> y: [b, n, l, h, p], into: [b, n, l, h]
  r[b, n, l, h] = -dt[b, n, l, h] * exp(a[h])
  cum[b, n, l, h] = sum(m) [m <= l] * r[b, n, m, h]
  g[b, n, l, m] = sum(k) cm[b, n, l, k] * bm[b, n, m, k]
  d[b, n, h, l, m] = select(m <= l, cum[b, n, l, h] - cum[b, n, m, h], 0)
  w[b, n, h, l, m] = select(m <= l, exp(d[b, n, h, l, m]), 0) * dt[b, n, m, h] * g[b, n, l, m]
  y[b, n, l, h, p] = sum(m) w[b, n, h, l, m] * x[b, n, m, h, p]
  into[b, n, l, h] = exp(cum[b, n, l, h])
"""
CHUNK = [Shape(shape) for shape in ((2, 4, 3, 2, 2), (2, 4, 3, 2), (2,), (2, 4, 3, 2), (2, 4, 3, 2))]


BY_CONGRUENCE_ALONE = {("window_attention", "t"), ("window_attention", "k")}
"""Cases that normal forms do not prove: they do not know that no sum meets infinities of both signs."""


@pytest.mark.parametrize("name", of_the_day(sorted(set(ALL) - SLOW_ADJOINTS), 20))
def test_normal_forms_prove_what_congruence_does(name: str) -> None:
    """An operator and its adjoints are proved again by a second method, which compares coefficients."""
    forward = case(name)
    made = [] if forward.whole else [n for n, operand in enumerate(forward.inputs) if operand.integer_range is None]
    for instance in (forward, *(adjoint(forward, library(), position) for position in made)):
        for axis in instance.axes:
            subject = generalise(instance, (axis,))
            there = subject.axes.get(axis, axis)
            if next(obstacles(subject.instance, there), None) is None and not instance.evaluation:
                proved = isinstance(prove_by_forms(subject, there, library()), Proved)
                assert proved is ((name, axis) not in BY_CONGRUENCE_ALONE), (instance.name, axis)


def test_the_batch_of_a_sum_with_a_function_of_a_statement_is_divided() -> None:
    """State-space duality: a sum of products contains exp of differences of a running sum."""
    known = declare(DUALITY)
    forward = instantiate(known.operators["chunk"], CHUNK, {})
    for instance in (forward, *(adjoint(forward, known, position) for position in range(5))):
        for axis in ("b", "n", "h", "k"):
            answer = prove_configuration(instance, axis, known)
            assert isinstance(answer, Proved) and not answer.questions, (instance.name, axis, answer)
    for axis in ("l", "m"):
        answer = prove_configuration(forward, axis, known)
        assert isinstance(answer, NotProved) and "test.uop:" in answer.reason


def part(array: np.ndarray, operand: Operand, axis: str, device: int, devices: int) -> np.ndarray:
    """The slice of an operand on a device; the whole operand if it lacks the axis."""
    places = [place for place, dim in enumerate(operand.dims) if axis in dim]
    return np.split(array, devices, places[0])[device] if places else array


def divided(instance: Instance, axis: str, shapes: list[Shape], given: list[np.ndarray]) -> None:
    """Compares the operator on two slices with the whole operator, numerically.

    Results with the axis are concatenated. Other results are equal on both slices, or added if they sum over the axis.
    """
    known = declare(DUALITY + SEGMENTS)
    whole = evaluate(instance, given, known)
    parts = []
    for device in range(2):
        own = [part(x, operand, axis, device, 2) for x, operand in zip(given, instance.inputs, strict=True)]
        local = instantiate(
            instance.operator, [Shape(x.shape, s.integer_range) for x, s in zip(own, shapes, strict=True)], {}
        )
        parts.append(evaluate(local, own, known))
    for place, operand in enumerate(instance.outputs):
        found = [part_of[place] for part_of in parts]
        if axis in operand.axes:
            np.testing.assert_allclose(np.concatenate(found, operand.axes.index(axis)), whole[place], rtol=1e-12)
        elif axis in next(e.over for e in instance.equations if e.target.name == operand.name):
            np.testing.assert_allclose(sum(found), whole[place], rtol=1e-12)
        else:
            for array in found:
                np.testing.assert_allclose(array, whole[place], rtol=1e-12)


@pytest.mark.parametrize("axis", ["b", "n", "h", "p"])
def test_slices_of_a_batch_give_slices_in_numbers(axis: str) -> None:
    known = declare(DUALITY)
    rng = np.random.default_rng(5)
    instance = instantiate(known.operators["chunk"], CHUNK, {})
    divided(instance, axis, CHUNK, [rng.standard_normal(shape.dims) for shape in CHUNK])


@pytest.mark.parametrize("name", ["segment_softmax", "segment_max", "segment_mean", "cell_max", "segment_log_sum"])
def test_heads_of_segments_are_divided(name: str) -> None:
    """Entries and segments can be sharded too, with maxima compared across devices: segment softmax and variants."""
    known = declare(SEGMENTS)
    operator = known.operators[name]
    shapes = [
        Shape((4, 6, 2)[3 - len(tensor.dims) :], None if tensor.integer_range is None else 3)
        for tensor in operator.inputs
    ]
    shapes = [Shape((6,), 3) if shape.integer_range is not None else shape for shape in shapes]
    instance = instantiate(operator, shapes, {})
    rng = np.random.default_rng(6)
    for axis in instance.axes:
        assert isinstance(prove_configuration(instance, axis, known), Proved), axis
        made = adjoint(instance, known, 0)
        assert isinstance(prove_configuration(made, axis, known), Proved), axis
    given = [
        rng.integers(3, size=s.dims) if s.integer_range is not None else rng.standard_normal(s.dims) for s in shapes
    ]
    divided(instance, "h", shapes, given)


@pytest.mark.parametrize(
    ("body", "axis", "obstacle"),
    [
        ("y[a, b] = x[a, |b| - 1 - b]", "b", "is not read at the axis itself"),
        ("y[a, b] = x[a, b] - x[a, 0]", "b", "is not read at the axis itself"),
        ("y[a, b] = x[a, b] * w[b]", "b", "in another dimension"),
        ("y[a, b] = x[a, b] * w[0]", "b", None),
        ("y[a, b] = x[a, b] * (prod(c) exp(w[c]))", "c", "product"),
        ("y[a, b] = sin(x[a, b]) * (sum(c) [c == i[a]] * w[c])", "a", None),
        ("y[a, b] = sin(x[a, b] + b) * |b| + a", "b", None),
        ("y[a, b] = exp(x[a, b] - (max(b) x[a, b]))", "b", None),
    ],
)
def test_what_is_no_congruence_has_an_obstacle(body: str, axis: str, obstacle: str | None) -> None:
    text = f"op f(x: [a, b], w: [c], i: int<c>[a]) -> y: [a, b]\n  {body} + 0 * w[0] + 0 * i[a]\n"
    instance = instantiate(declare(text).operators["f"], [Shape((4, 4)), Shape((4,)), Shape((4,), 4)], {})
    found = next(obstacles(instance, axis), None)
    if obstacle is None:
        assert found is None
    else:
        assert found is not None and obstacle in found and "test.uop:2:" in found


def test_an_axis_with_a_condition_is_left_to_normal_forms() -> None:
    """On a slice the condition would imply a different size."""
    text = "op f(x: [a, b]) -> y: [a, c]\n  where c == b + 1\n  y[a, c] = exp(x[a, 0]) + c\n"
    instance = instantiate(declare(text).operators["f"], [Shape((4, 4))], {})
    assert "condition" in next(obstacles(instance, "b"))
    assert next(obstacles(instance, "a"), None) is None
