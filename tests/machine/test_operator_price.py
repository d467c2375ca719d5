"""Prices of operators against their formulas, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.graph import emitted_kernels
from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.graph import Node
from unity_dsl.graph.layout import Invariant, Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Along, TypedOperator, Uniformly, type_operator
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.padding import padded
from unity_dsl.graph.plan import Exposure
from unity_dsl.graph.typed_configurations import configurations
from unity_dsl.index.cost.work import backward_work
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.machine import operator_price
from unity_dsl.machine.collective_price import price_steps
from unity_dsl.machine.machine import Link, Machine, load_machine
from unity_dsl.machine.operator_price import (
    price_inner,
    price_operator,
    price_operators,
    price_update,
)
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

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


def test_a_price_is_that_of_the_emitted_kernels_of_a_padded_operator(library: Library) -> None:
    """A native call leaves padding out; where the padded axis is divided, equations are emitted. The price does not
    depend on which of both is priced first.
    """
    text = "model m[b = 400, e = 500]\n  input x: f32[b, e]\n  weight w: f32[b, e] ~ zeros\n  loss mse(x, w)\n"
    model = padded(build_model(parse_model(Source("m.udl", text)), library), {"x:1": 501}, library)
    (node,) = (step for step in model.graph.steps if isinstance(step, Node))
    typed = [type_operator(node.instance, (role,), NODE, library) for role in (Uniformly(Invariant()), Along("n1"))]
    found = [one for one in typed if not isinstance(one, str)]

    def prices(some: list[TypedOperator]) -> list[float]:
        operator_price._known.cache_clear()
        emitted_kernels._emitted_kernels.cache_clear()
        return price_operators(node.instance, some, "f32", NODE, MACHINE, [True, False], library).tolist()

    assert len(found) == 2
    assert prices(found) == [*prices(found[:1]), *prices(found[1:])] == prices(found[::-1])[::-1]


def test_the_roofline_of_a_matrix_product(library: Library) -> None:
    """Forward 2mkn and backward twice that, at half the peak; launches 5 us each."""
    instance = linear(library, 4096, 4096, 4096)
    typed = type_operator(instance, (Uniformly(Invariant()),), Mesh((MeshAxis("a", 2),)), library)
    assert not isinstance(typed, str)
    mesh = Mesh((MeshAxis("a", 2),))
    forward = price_operator(instance, typed, "f32", mesh, MACHINE, [False, False], library)
    both = price_operator(instance, typed, "f32", mesh, MACHINE, [True, True], library)
    flops = 2 * 4096**3 / (2e12 * 0.5)
    assert forward == pytest.approx(flops + 5e-6)
    assert both == pytest.approx(3 * flops + 10e-6)


def test_what_is_behind_launches_counts_in_part(library: Library) -> None:
    """Launches, two of 5 us, count by 0.8. The product and the bytes of a collective count by a quarter."""
    mesh = Mesh((MeshAxis("a", 2),))
    seen = MACHINE.exposing(Exposure(launches=0.5)).exposing(Exposure(launches=0.8, devices=0.25))
    instance = linear(library, 4096, 4096, 4096)
    typed = type_operator(instance, (Uniformly(Invariant()),), mesh, library)
    assert not isinstance(typed, str)
    product = price_operator(instance, typed, "f32", mesh, seen, [True, True], library)
    assert product == pytest.approx(3 * 2 * 4096**3 / (2e12 * 0.5) / 4 + 0.8 * 10e-6)
    alone, told = (price_steps([Step(StepKind.ALL_REDUCE, (0,))], mesh, m, 1.0).seconds(1e8) for m in (MACHINE, seen))
    assert told - 0.8 * 5e-6 == pytest.approx((alone - 5e-6) / 4)
    assert MACHINE.exposing(Exposure(devices=0.5)).exposing(Exposure()) == MACHINE
    assert seen.holding(7) == MACHINE.holding(7).exposing(seen.exposure) and seen.holding(7).origin.memory_bytes == 7


@pytest.mark.parametrize("name", ["dgx-h100", "summit", "local"])
def test_prices_do_not_depend_on_what_was_priced_before(name: str, library: Library) -> None:
    """Figures cached for one exposure are reused for others, on measured machines too. The prices equal those of an
    empty cache.
    """
    machine, mesh = load_machine(name), Mesh((MeshAxis("a", 2),))
    exposures = [Exposure(), Exposure(launches=0.2), Exposure(launches=0.7, devices=0.3), Exposure(sums=0.1)]

    def prices() -> list[list[float]]:
        found = []
        for instance in (linear(library, 96, 512, 300), instantiate(library.operators["relu"], [Shape((64, 64))], {})):
            needs = [True] * len(instance.inputs)
            typed = configurations(instance, mesh, library, needs, needs, ShardingTheorems(library))
            for seen in map(machine.exposing, exposures):
                found.append(price_operators(instance, typed, "f32", mesh, seen, needs, library).tolist())
        return found

    operator_price._known.cache_clear()
    first = prices()
    assert prices() == first
    exposures.reverse()
    operator_price._known.cache_clear()
    turned = prices()
    assert [sorted(map(tuple, turned[part])) for part in (slice(0, 4), slice(4, 8))] == [
        sorted(map(tuple, first[part])) for part in (slice(0, 4), slice(4, 8))
    ]
    assert len({prices[0] for prices in first}) > 2, "exposures count"


def test_small_operators_are_bound_by_memory(library: Library) -> None:
    instance = instantiate(library.operators["relu"], [Shape((1000, 1000))], {})
    mesh = Mesh((MeshAxis("a", 2),))
    typed = type_operator(instance, (Uniformly(Invariant()),), mesh, library)
    assert not isinstance(typed, str)
    assert price_operator(instance, typed, "f32", mesh, MACHINE, [False], library) == pytest.approx(5e-6 + 8e6 / 0.8e12)


def test_statements_of_an_operator_are_kernels_of_their_own(library: Library) -> None:
    """A product, a sum and `relu` are three kernels each way. Between them two tensors of 4 MB are written and read; in
    the backward pass, their gradients are.
    """
    instance = instantiate(
        library.operators["linear_bias_relu"], [Shape((1000, 10)), Shape((1000, 10)), Shape((1000,))], {}
    )
    typed = type_operator(instance, (), Mesh(()), library)
    assert not isinstance(typed, str)
    forward, both = (
        price_operator(instance, typed, "f32", Mesh(()), MACHINE, [needs] * 3, library) for needs in (False, True)
    )
    between = 3 * 5e-6 + 2 * 8e6 / 0.8e12
    assert forward == pytest.approx(between + 22e6 / 1e12)
    done = backward_work(instance, [True] * 3)
    assert both - forward == pytest.approx(between + max(done.flops / 1e12, done.bytes_read / 0.8e12))


def test_a_view_costs_nothing_and_a_copy_its_bytes(library: Library) -> None:
    """Rows of a matrix are a view; their gradient is written into zeros. A transposed and merged tensor is copied."""

    def price(text: str, needs: bool) -> float:
        model = build_model(parse_model(Source("m.udl", text)), library, {}, None)
        node = model.graph.steps[0]
        assert isinstance(node, Node)
        typed = type_operator(node.instance, (), Mesh(()), library)
        assert not isinstance(typed, str)
        return price_operator(node.instance, typed, "f32", Mesh(()), MACHINE, [needs], library)

    head = "model m\n  input x: f32[4, 1000, 250]\n  y = x[a, b, c] -> "
    turned, merged = (f"{head}{result}\n  output y\n" for result in ("[b, a, c]", "[b, (a c)]"))
    assert price(turned, False) == 0
    assert price(turned, True) == 0
    assert price(merged, False) == pytest.approx(5e-6 + 8e6 / 0.8e12)
    part = instantiate(library.operators["slice"], [Shape((1000, 1000))], {"dim": 0, "start": 0, "stop": 10})
    typed = type_operator(part, (), Mesh(()), library)
    assert not isinstance(typed, str)
    assert price_operator(part, typed, "f32", Mesh(()), MACHINE, [False], library) == 0
    assert price_operator(part, typed, "f32", Mesh(()), MACHINE, [True], library) > 5e-6


def test_dividing_divides_the_time(library: Library) -> None:
    instance, mesh = linear(library, 4096, 4096, 4096), Mesh((MeshAxis("a", 2),))
    whole, half = (type_operator(instance, (role,), mesh, library) for role in (Uniformly(Invariant()), Along("o")))
    assert not isinstance(whole, str)
    assert not isinstance(half, str)
    prices = [price_operator(instance, typed, "f32", mesh, MACHINE, [True, True], library) for typed in (whole, half)]
    assert prices[1] - 10e-6 == pytest.approx((prices[0] - 10e-6) / 2)


def test_many_configurations_at_once(library: Library) -> None:
    mesh = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2)))
    softmax = instantiate(library.operators["softmax"], [Shape((8, 6, 4))], {})
    for instance, gradients in ((linear(library, 8, 6, 4), (True, True)), (softmax, (True,)), (softmax, (False,))):
        typed = configurations(instance, mesh, library, gradients, (False,) * len(gradients), ShardingTheorems(library))
        found = price_operators(instance, typed, "f64", mesh, MACHINE, gradients, library)
        one_by_one = [price_operator(instance, t, "f64", mesh, MACHINE, gradients, library) for t in typed]
        assert found == pytest.approx(np.array(one_by_one))


def test_prices_known_from_other_meshes_are_those_there(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """With neighbourhood reads (halos), and with inner collectives."""
    conv = instantiate(
        library.operators["conv2d"], [Shape((8, 8, 16, 16)), Shape((8, 8, 3, 3))], {"pad_h": 1, "pad_w": 1}
    )
    softmax = instantiate(library.operators["softmax"], [Shape((8, 6, 4))], {})
    for instance, gradients in ((conv, (True, True)), (softmax, (True,))):
        found = {}
        for known in (operator_price._known, lambda *_: {}):
            monkeypatch.setattr(operator_price, "_known", known)
            for degrees in ((2, 4), (4, 2), (2, 2)):
                mesh = Mesh((MeshAxis("a", degrees[0], 1), MeshAxis("b", degrees[1])))
                weights = (False,) * len(gradients)
                typed = configurations(instance, mesh, library, gradients, weights, ShardingTheorems(library))
                prices = price_operators(instance, typed, "f32", mesh, MACHINE, gradients, library)
                assert np.array_equal(found.setdefault(degrees, prices), prices)


def test_collectives_inside_are_priced(library: Library) -> None:
    """Softmax divided along its summed axis: an all-reduce of the maximum and one of the sum, each over
    a ring of two.
    """
    softmax, mesh = instantiate(library.operators["softmax"], [Shape((64, 32))], {}), Mesh((MeshAxis("a", 2),))
    (axis,) = [name for name, size in softmax.sizes.items() if size == 32]
    typed = type_operator(softmax, (Along(axis),), mesh, library)
    assert not isinstance(typed, str)
    forward = price_inner(softmax, typed, "f32", mesh, MACHINE, gradient=False)
    once = 5e-6 + 2 * 1e-6 + 64 * 4 / 100e9  # a ring of two: each half is sent once as a term and once as a sum
    assert forward == pytest.approx(2 * once)
    assert price_inner(softmax, typed, "f32", mesh, MACHINE, gradient=True) > forward


def test_moments_are_priced_as_one_collective_each_way(library: Library) -> None:
    """layer_norm divided along its normalised axis: mean and variance of 64 rows are averaged in float64, and the
    backward pass has two sums. In float64 itself, means are averaged before variances.
    """
    shapes = [Shape((64, 32)), Shape((32,)), Shape((32,))]
    norm, mesh = instantiate(library.operators["layer_norm"], shapes, {}), Mesh((MeshAxis("a", 2),))
    typed = type_operator(norm, (Along("c"),), mesh, library)
    assert not isinstance(typed, str)
    summed = price_steps((Step(StepKind.ALL_REDUCE, (0,)),), mesh, MACHINE, 1.0)
    forward, backward = summed.seconds(2 * 64 * 8), summed.seconds(2 * 64 * 4)
    assert price_inner(norm, typed, "f32", mesh, MACHINE, gradient=False) == pytest.approx(forward)
    assert price_inner(norm, typed, "f32", mesh, MACHINE, gradient=True) == pytest.approx(forward + backward)
    exact = price_inner(norm, typed, "f64", mesh, MACHINE, gradient=False)
    assert exact == pytest.approx(2 * summed.seconds(64 * 8))


def test_the_optimizer_goes_over_its_state() -> None:
    assert price_update(1e9, MACHINE) == pytest.approx(7e9 / 0.8e12)
