"""Native calls on local tensors: the declared operator at other shapes and attributes, evaluated with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.declared import as_they_stand
from unity_dsl.graph.declared_slices import positions_of
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Along, TypedOperator, type_operator
from unity_dsl.graph.local_native_call import LocalCall, local_call
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.instantiation.instantiate import Shape, instantiate

from .overlapping import library_with

OWN = """
## One padding for both dimensions.
op square_pool(x: [h, w]; size, pad = 0) -> y: [p, q]
  where r == size, s == size, p == h + 2 * pad - size + 1, q == w + 2 * pad - size + 1
  y[p, q] = sum(r, s) x[p + r - pad, q + s - pad else 0]
  torch: F.avg_pool2d(x, size, 1, pad)

## Where the window stands is a part of the value.
op placed_pool(x: [n, c, h]; size, pad = 0) -> y: [n, c, p]
  where r == size, p == h + 2 * pad - size + 1
  y[n, c, p] = p + sum(r) x[n, c, p + r - pad else 0]
  torch: F.conv1d(x, x, padding=pad)

## Two numbers outside.
op two_fills(x: [n, c, h]; pad = 1) -> y: [n, c, h]
  y[n, c, i] = x[n, c, i - pad else 0] + x[n, c, i + 1 else 1]
  torch: F.conv1d(x, x, padding=pad)

## As many times as large as there are positions.
op times_count(x: [n, c]) -> y: [n, c]
  y[n, c] = x[n, c] * |n|
  torch: torch.mul(x, |n|)

## The number of positions is added.
op plus_count(x: [n, c]) -> y: [n, c]
  y[n, c] = x[n, c] + |n|
  torch: torch.add(x, |n|)
"""
with as_they_stand():  # the calls are never run
    LIBRARY = library_with(OWN)
GRID = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))


def make(name: str, *shapes: tuple[int, ...], **attributes: int) -> Instance:
    return instantiate(LIBRARY.operators[name], [Shape(shape) for shape in shapes], attributes)


def call_of(instance: Instance, *roles: Along, mesh: Mesh = GRID) -> tuple[TypedOperator, LocalCall | None]:
    typed = type_operator(instance, roles, mesh, LIBRARY)
    assert isinstance(typed, TypedOperator), typed
    return typed, local_call(instance, typed, LIBRARY)


def check(instance: Instance, *roles: Along) -> None:
    """On every device, the operator with the call's attributes on the local operands gives the local result."""
    typed, call = call_of(instance, *roles)
    assert call is not None
    random = np.random.default_rng(3)
    inputs = [random.standard_normal(instance.shape(operand)) for operand in instance.inputs]
    (whole,) = evaluate(instance, inputs, LIBRARY)
    fills = {(window.operand, window.dim): value for window, value in call.outside}
    for rank in range(GRID.size):
        coordinates = GRID.coordinates(rank)
        held = []
        for operand, layout, value in zip(instance.inputs, typed.arguments, inputs, strict=True):
            for dim, extent in enumerate(value.shape):
                index = positions_of(layout, dim, extent, GRID, coordinates, LIBRARY)
                value = np.where(
                    np.expand_dims(index >= 0, [d for d in range(value.ndim) if d != dim]),
                    np.take(value, np.maximum(index, 0), dim),
                    fills.get((operand.name, dim), 0),
                )
            held.append(value)
        local = instantiate(instance.operator, [Shape(value.shape) for value in held], call.attributes)
        (found,) = evaluate(local, held, LIBRARY)
        expected = whole
        for dim, extent in enumerate(whole.shape):
            expected = np.take(expected, positions_of(typed.results[0], dim, extent, GRID, coordinates, LIBRARY), dim)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=25)
@given(
    widths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    moves=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    roles=st.sampled_from([("p", "q"), ("p", "p"), ("p", "n"), ("g", "q"), ("n", "p")]),
    data=st.data(),
)
def test_convolutions(
    widths: tuple[int, int], moves: tuple[int, int], roles: tuple[str, str], data: st.DataObject
) -> None:
    """The paddings drawn are those with which windows advance in step with the slices."""
    stride, dilation = moves
    shape, pads = [], []
    for width in widths:
        reach = dilation * (width - 1) + 1
        # q == (l + 2 * pad - reach) // stride + 1 equals l / stride if 0 <= 2 * pad - reach + stride < stride.
        fitting = [pad for pad in range(8) if 0 <= 2 * pad - reach + stride < stride]
        if not fitting:
            return
        shape.append(4 * stride * data.draw(st.integers(1, 2)))
        pads.append(data.draw(st.sampled_from(fitting)))
    attributes = {"stride": stride, "dilation": dilation, "pad_h": pads[0], "pad_w": pads[1], "groups": 2}
    check(
        make("conv2d", (2, 4, *shape), (4, 2, *widths), **attributes),
        *(Along(axis, "halo" if axis in "pq" else "partition") for axis in roles),
    )


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("size, stride, pad", [(3, 1, 1), (3, 2, 1), (2, 2, 0), (1, 2, 0)])
def test_pools(name: str, size: int, stride: int, pad: int) -> None:
    instance = make(name, (2, 3, 8, 16), size=size, stride=stride, pad_h=pad, pad_w=pad)
    check(instance, Along("p", "halo"), Along("q", "halo"))


def test_a_padding_is_less_by_what_is_held_of_it() -> None:
    instance = make("conv2d", (2, 4, 8, 8), (4, 2, 3, 5), pad_h=1, pad_w=2, groups=2)
    _, call = call_of(instance, Along("p", "halo"), Along("g"))
    assert call is not None and call.outside == ()
    assert {**call.attributes} == {**instance.attributes, "pad_h": 0, "groups": 1}


def test_a_maximum_has_its_own_number_outside() -> None:
    instance = make("max_pool2d", (2, 3, 8, 8), size=3, stride=1, pad_h=1, pad_w=1)
    _, call = call_of(instance, Along("p", "halo"), Along("n"))
    assert call is not None
    assert [(window.dim, value) for window, value in call.outside] == [(2, float("-inf"))]


@pytest.mark.parametrize(
    ("instance", "axis"),
    [
        (make("square_pool", (8, 8), size=3, pad=1), "p"),
        (make("placed_pool", (2, 3, 8), size=3, pad=1), "p"),
        (make("two_fills", (2, 3, 8)), "h"),
    ],
    ids=["one attribute for two dimensions", "positions as values", "two fills"],
)
def test_where_no_call_computes_the_same_there_is_none(instance: Instance, axis: str) -> None:
    _, call = call_of(instance, Along(axis, "halo"), mesh=Mesh((MeshAxis("a", 2),)))
    assert call is None


@pytest.mark.parametrize("name", ["mse", "l1", "huber", "smooth_l1", "binary_cross_entropy_with_logits"])
@pytest.mark.parametrize("axes", [("n0", "n1"), ("n0", "n0"), ("n1", "n1")])
def test_a_mean_over_a_part_is_multiplied_by_its_part_of_the_positions(name: str, axes: tuple[str, str]) -> None:
    check_scaled(make(name, (8, 4), (8, 4)), *map(Along, axes))


@pytest.mark.parametrize("name", ["cross_entropy", "nll"])
def test_a_likelihood_over_a_part_of_the_rows(name: str) -> None:
    shapes = [Shape((4, 6, 5)), Shape((4, 6), 5)]
    check_scaled(instantiate(LIBRARY.operators[name], shapes, {}), Along("n0"), Along("n1"))
    divided = instantiate(LIBRARY.operators[name], [Shape((4, 6)), Shape((4,), 6)], {})
    assert call_of(divided, Along("c"), mesh=Mesh((MeshAxis("a", 2),)))[1] is None, "classes are summed on the way"


def test_a_number_of_positions_must_be_a_factor() -> None:
    check_scaled(make("times_count", (8, 3)), Along("n"), Along("n"))
    assert call_of(make("plus_count", (8, 3)), Along("n"), mesh=Mesh((MeshAxis("a", 2),)))[1] is None


def check_scaled(instance: Instance, *roles: Along) -> None:
    """Each device's result times the factor is its slice of the whole, or its term of the sum."""
    typed, call = call_of(instance, *roles)
    assert call is not None and call.factor != 1
    random, inputs = np.random.default_rng(3), []
    for operand in instance.inputs:
        shape = instance.shape(operand)
        whole = operand.integer_range is None
        inputs.append(random.standard_normal(shape) if whole else random.integers(0, operand.integer_range, shape))
    (expected,) = evaluate(instance, inputs, LIBRARY)
    found = np.zeros_like(expected)
    for rank in range(GRID.size):
        held = [value[part(typed, place, value, rank)] for place, value in enumerate(inputs)]
        given = [
            Shape(value.shape, operand.integer_range) for operand, value in zip(instance.inputs, held, strict=True)
        ]
        local = instantiate(instance.operator, given, call.attributes)
        (own,) = evaluate(local, held, LIBRARY)
        found[part(typed, -1, expected, rank)] += float(call.factor) * own
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def part(typed: TypedOperator, place: int, value: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    """The index of a device's slice in an operand, or in the result (`place` -1)."""
    layout = typed.arguments[place] if place >= 0 else typed.results[0]
    coordinates = GRID.coordinates(rank)
    found = [positions_of(layout, dim, size, GRID, coordinates, LIBRARY) for dim, size in enumerate(value.shape)]
    return np.ix_(*found)
