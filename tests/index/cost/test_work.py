"""Flops and bytes: against hand counts, against each other at local sizes, as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.index.cost.work import Work, backward_work, work
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate
from unity_dsl.index.library import Library

from ..declare import declare
from ..test_ops import CASES


def made(library: Library, name: str, *shapes: Shape | tuple[int, ...], **attributes: float) -> Instance:
    given = [shape if isinstance(shape, Shape) else Shape(shape) for shape in shapes]
    return instantiate(library.operators[name], given, attributes)


def numbers(done: Work) -> tuple[float, float, float]:
    return done.flops, done.bytes_read, done.bytes_written


def test_a_matrix_product(library: Library) -> None:
    b, i, o = 3, 5, 7
    instance = made(library, "linear", (b, i), (o, i))
    assert numbers(work(instance)) == (2 * b * i * o, 4 * (b * i + o * i), 4 * b * o)
    by_x = (2 * b * i * o, 4 * (b * o + o * i), 4 * b * i)
    by_w = (2 * b * i * o, 4 * (b * o + b * i), 4 * o * i)
    assert numbers(backward_work(instance, [True, False])) == by_x
    assert numbers(backward_work(instance, [False, True])) == by_w
    assert numbers(backward_work(instance, [True, True])) == tuple(np.add(by_x, by_w))
    assert numbers(backward_work(instance, [False, False])) == (0, 0, 0)


def test_element_bytes_are_those_of_floats_only(library: Library) -> None:
    instance = made(library, "embedding", Shape((6,), 50), (50, 4))
    assert work(instance, element_bytes=2).bytes_read == 8 * 6 + 2 * 6 * 4


def test_a_look_up_moves_the_rows_it_needs(library: Library) -> None:
    n, v, d = 6, 50, 4
    instance = made(library, "embedding", Shape((n,), v), (v, d))
    assert numbers(work(instance)) == (0, 8 * n + 4 * n * d, 4 * n * d)
    zeros = 4 * v * d
    assert numbers(backward_work(instance, [False, True])) == (n * d, 8 * n + 4 * n * d, zeros + 4 * n * d)


def test_a_look_up_of_more_rows_than_there_are_reads_the_table(library: Library) -> None:
    instance = made(library, "embedding", Shape((1000,), 5), (5, 4))
    assert work(instance).bytes_read == 8 * 1000 + 4 * 5 * 4


@pytest.mark.parametrize(
    ("name", "shapes", "attributes"),
    [("slice", [(9, 4)], {"dim": 0, "start": 2, "stop": 5}), ("concat", [(3, 4), (2, 4)], {"dim": 0})],
)
def test_moving_elements_computes_nothing(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, float], library: Library
) -> None:
    instance = made(library, name, *shapes, **attributes)
    moved = instance.shape(instance.outputs[0])
    assert numbers(work(instance)) == (0, 4 * np.prod(moved), 4 * np.prod(moved))
    assert backward_work(instance, [True] * len(shapes)).flops == 0


def test_a_view_computes_nothing(library: Library) -> None:
    binding = Binding(((("h", 2), ("k", 3)),), ((("k", 3),), (("h", 2),)))
    instance = instantiate(library.operators["rearrange"], [Shape((6,))], {}, binding=binding)
    assert numbers(work(instance)) == (0, 24, 24)


def test_operations_count_once_per_combination_of_the_axes_they_depend_on() -> None:
    library = declare("op f(x: [a], y: [b]) -> z: [a, b]\n  z[a, b] = exp(x[a]) * y[b] + exp(x[a]) * 2\n")
    instance = instantiate(library.operators["f"], [Shape((5,)), Shape((7,))], {})
    assert work(instance).flops == 2 * 5 + 2 * 5 * 7


def test_a_cotangent_that_is_passed_on_costs_nothing(library: Library) -> None:
    same = made(library, "add", (4, 5), (4, 5))
    assert numbers(backward_work(same, [True, True])) == (0, 0, 0)
    repeated = made(library, "add", (4, 5), (5,))
    assert numbers(backward_work(repeated, [True, True])) == (20, 4 * 20, 4 * 5)


def test_what_adjoints_share_is_computed_once(library: Library) -> None:
    shapes = [(4, 5), (5,), (5,)]
    norm = made(library, "layer_norm", *shapes)
    alone = [backward_work(norm, [i == j for j in range(3)]).flops for i in range(3)]
    assert backward_work(norm, [True] * 3).flops == sum(alone)
    text = "op f(x: [a], y: [a]) -> z: [a]\n  u[a] = x[a] * y[a]\n  z[a] = exp(u[a])\n"
    shared = instantiate(declare(text).operators["f"], [Shape((5,))] * 2, {})
    # d_u = d_z * exp'(u) is two operations, d_x = d_u * y and d_y = d_u * x are one each.
    assert backward_work(shared, [True, True]).flops == 4 * 5


@pytest.mark.parametrize("name", CASES)
def test_work_at_arrays_of_sizes_is_work_at_each(name: str, library: Library) -> None:
    instance = CASES[name](np.random.default_rng(2)).instance(library.operators[name])
    factors = np.array([1.0, 2.0, 8.0])
    arrays = {axis: size * factors for axis, size in instance.sizes.items()}
    needs = [operand.integer_range is None for operand in instance.inputs]
    forward, backward = work(instance, arrays), backward_work(instance, needs, arrays)
    for position, factor in enumerate(factors):
        sizes = {axis: int(size * factor) for axis, size in instance.sizes.items()}
        for found, one in ((forward, work(instance, sizes)), (backward, backward_work(instance, needs, sizes))):
            at = [np.broadcast_to(count, factors.shape)[position] for count in numbers(found)]
            assert at == list(numbers(one))


def test_rows_are_added_to_zeros_of_the_whole_result(library: Library) -> None:
    """torch makes the zeros first, in forward and backward, whatever is added to them."""
    e, g, c, d, s, k = 3, 2, 4, 5, 6, 2
    shapes = [(g, s, d), Shape((g, s, k), e), Shape((g, s, k), s * k)]
    dispatch = made(library, "dispatch", *shapes, capacity=c)
    added = 4 * min(e * g * c * d, g * s * k * d)
    assert work(dispatch).bytes_written == 4 * e * g * c * d + added
    one_hot = made(library, "one_hot", Shape((s,), e))
    assert work(one_hot).bytes_written == 4 * s * e  # every pair is compared: nothing is looked up


def test_a_running_sum_is_one_pass_where_its_axes_are_whole(library: Library) -> None:
    """If the axes are divided, a device's part of one axis meets the whole other one."""
    n, m = 8, 3
    instance = made(library, "cumsum", (n, m), dim=0)
    (axis,) = (a for equation in instance.equations for a in equation.over)
    kept = instance.outputs[0].axes[0]
    assert work(instance).flops == n * m
    assert list(work(instance, {kept: np.array([n, n / 2])}).flops) == [n * m, 2 * n / 2 * n * m]
    assert work(instance, {axis: n, kept: n}).flops == n * m
    assert backward_work(instance, [True]).flops == n * m


def test_sizes_that_are_not_given_are_the_instance_s(library: Library) -> None:
    instance = made(library, "linear", (3, 5), (8, 5))
    assert work(instance, {"o": 4}).flops == work(instance).flops / 2
