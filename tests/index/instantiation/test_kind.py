"""Results shared by operators that differ in sizes alone equal the results of each operator by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unity_dsl.index.axes.axis_classes import classify, gradient_free, linear_operands, local_native
from unity_dsl.index.cost.work import backward_work, work
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.instantiation.representative import small_instances
from unity_dsl.index.library import Library

from ..declare import operator

SEED = 11
COUNT = 3
PAIRS = """
op pairs(x: [l], w: [r]) -> y: [q]
  where q == (l - r) // 2 + 1
  y[q] = sum(r) x[q * 2 + r] * w[r]
"""


def by_itself(instance: Instance, number: int) -> Instance:
    """The same operator as the only one of its kind, made so by an attribute that nothing reads."""
    return replace(instance, attributes={**instance.attributes, "~": number})


@pytest.fixture(scope="module")
def instances(library: Library) -> list[Instance]:
    random = np.random.default_rng(SEED)
    return [made for declared in library.operators.values() for made in small_instances(declared, random, COUNT)]


def test_classes_and_work_do_not_depend_on_sizes_but_by_the_kind(instances: list[Instance], library: Library) -> None:
    for number, instance in enumerate(instances):
        alone = by_itself(instance, number)
        assert instance.kind != alone.kind
        classes = classify(instance, library)
        assert classes == classify(alone, library)
        assert gradient_free(instance) == gradient_free(alone)
        assert linear_operands(instance) == linear_operands(alone)
        for axis in classes:
            assert local_native(instance, library, (axis,)) == local_native(alone, library, (axis,))
        needs = [True] * len(instance.inputs)
        assert work(instance) == work(alone)
        assert backward_work(instance, needs) == backward_work(alone, needs)


def test_adjoints_at_other_sizes_are_those_derived_there(instances: list[Instance], library: Library) -> None:
    """The same adjoint of each operator is requested at several sizes: later ones are looked up, not derived."""
    for number, instance in enumerate(instances):
        for position, operand in enumerate(instance.inputs):
            if operand.integer_range is None and not instance.whole:
                found = adjoint(instance, library, position)
                alone = adjoint(by_itself(instance, number), library, position)
                assert replace(alone, attributes=instance.attributes).identity == found.identity, (instance, position)


@pytest.mark.parametrize(("sizes", "same"), [((8, 3), True), ((4, 3), True), ((6, 3), True), ((6, 2), False)])
def test_sizes_say_which_axes_an_index_runs_over(sizes: tuple[int, int], same: bool) -> None:
    """`2 * p + r` reads every position of x once if r has two positions, and is a window if r has three."""
    length, width = sizes
    pairs = operator(PAIRS)
    known = instantiate(pairs, [Shape((10,)), Shape((3,))], {})
    assert (instantiate(pairs, [Shape((length,)), Shape((width,))], {}).kind == known.kind) is same


def test_numbers_of_attributes_tell_kinds_apart(library: Library) -> None:
    convolution = library.operators["conv2d"]

    def kind(size: int, **attributes: int) -> object:
        shapes = [Shape((2, 3, size, size)), Shape((4, 3, 3, 3))]
        return instantiate(convolution, shapes, attributes).kind

    assert kind(8, pad_h=1) == kind(12, pad_h=1)
    assert kind(8, pad_h=1) != kind(8, pad_h=0)
    assert kind(9, stride=2) != kind(9, stride=1)
