"""Prices of operators against their formulas, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.graph.layout import Invariant, Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Along, Uniformly, configurations, type_operator
from unity_dsl.graph.local_lowering import local_execution
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Link, Machine
from unity_dsl.machine.operator_price import (
    price_inner,
    price_operator,
    price_operators,
    price_statements,
    price_update,
    priced_kernels,
)
from unity_dsl.rules.sharding_theorems import ShardingTheorems

PEAK = {"f64": 1e12, "f32": 2e12, "bf16": 8e12, "f16": 8e12}
LEVELS = (Link("node", 4, 100e9, 1e-6), Link("network", 8, 40e9, 10e-6))
MACHINE = Machine("m", "cuda", PEAK, 1e12, 1e10, 5e-6, 0.5, 0.8, LEVELS)
NODE = Mesh((MeshAxis("a", 3),))
BYTES = 6e9


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


def linear(library: Library, rows: int, columns: int, out: int) -> Instance:
    return instantiate(library.operators["linear"], [Shape((rows, columns)), Shape((out, columns))], {})


def test_the_roofline_of_a_matrix_product(library: Library) -> None:
    """Forward 2mkn and backward twice that, at half the peak; launches 5 us each."""
    instance = linear(library, 4096, 4096, 4096)
    typed = type_operator(instance, (Uniformly(Invariant()),), Mesh((MeshAxis("a", 2),)), library)
    assert not isinstance(typed, str)
    mesh = Mesh((MeshAxis("a", 2),))
    forward = price_operator(instance, typed, "f32", mesh, MACHINE, [False, False])
    both = price_operator(instance, typed, "f32", mesh, MACHINE, [True, True])
    flops = 2 * 4096**3 / (2e12 * 0.5)
    assert forward == pytest.approx(flops + 5e-6)
    assert both == pytest.approx(3 * flops + 10e-6)


def test_small_operators_are_bound_by_memory(library: Library) -> None:
    instance = instantiate(library.operators["relu"], [Shape((1000, 1000))], {})
    mesh = Mesh((MeshAxis("a", 2),))
    typed = type_operator(instance, (Uniformly(Invariant()),), mesh, library)
    assert not isinstance(typed, str)
    assert price_operator(instance, typed, "f32", mesh, MACHINE, [False]) == pytest.approx(5e-6 + 8e6 / 0.8e12)


def test_statements_of_an_operator_are_kernels_of_their_own(library: Library) -> None:
    """A product, a sum and `relu` of two equations: one kernel more, and two tensors of 4 MB written and read again."""
    shapes = [Shape((1000, 10)), Shape((1000, 10)), Shape((1000,))]
    instance = instantiate(library.operators["linear_bias_relu"], shapes, {})
    typed = type_operator(instance, (), Mesh(()), library)
    assert not isinstance(typed, str)
    execution = local_execution(instance, typed, Mesh(()), library, [True] * 3, 4)
    kernels = priced_kernels(instance, typed)
    assert kernels == len(instance.equations) == 2
    assert price_statements(execution, kernels, MACHINE) == pytest.approx(5e-6 + 16e6 / 0.8e12)


def test_dividing_divides_the_time(library: Library) -> None:
    instance, mesh = linear(library, 4096, 4096, 4096), Mesh((MeshAxis("a", 2),))
    whole, half = (type_operator(instance, (role,), mesh, library) for role in (Uniformly(Invariant()), Along("o")))
    assert not isinstance(whole, str)
    assert not isinstance(half, str)
    prices = [price_operator(instance, typed, "f32", mesh, MACHINE, [True, True]) for typed in (whole, half)]
    assert prices[1] - 10e-6 == pytest.approx((prices[0] - 10e-6) / 2)


def test_many_configurations_at_once(library: Library) -> None:
    mesh = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2)))
    softmax = instantiate(library.operators["softmax"], [Shape((8, 6, 4))], {})
    for instance, gradients in ((linear(library, 8, 6, 4), (True, True)), (softmax, (True,)), (softmax, (False,))):
        typed = configurations(instance, mesh, library, gradients, (False,) * len(gradients), ShardingTheorems(library))
        found = price_operators(instance, typed, "f64", mesh, MACHINE, gradients)
        one_by_one = [price_operator(instance, t, "f64", mesh, MACHINE, gradients) for t in typed]
        assert found == pytest.approx(np.array(one_by_one))


def test_collectives_inside_are_priced(library: Library) -> None:
    """Softmax divided along what it sums over: an all-reduce of the maximum and one of the sum, of one hop each."""
    softmax, mesh = instantiate(library.operators["softmax"], [Shape((64, 32))], {}), Mesh((MeshAxis("a", 2),))
    (axis,) = [name for name, size in softmax.sizes.items() if size == 32]
    typed = type_operator(softmax, (Along(axis),), mesh, library)
    assert not isinstance(typed, str)
    forward = price_inner(softmax, typed, "f32", mesh, MACHINE, gradient=False)
    once = 5e-6 + 1e-6 + 64 * 4 / 100e9
    assert forward == pytest.approx(2 * once)
    assert price_inner(softmax, typed, "f32", mesh, MACHINE, gradient=True) > forward


def test_the_optimizer_goes_over_its_state() -> None:
    assert price_update(1e9, MACHINE) == pytest.approx(7e9 / 0.8e12)
