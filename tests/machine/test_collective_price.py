"""Prices of collectives against their formulas, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.layout import Invariant, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, nest
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.machine.collective_price import group_price, local_fraction, price_step, price_steps
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import Link, Machine, load_machine
from unity_dsl.machine.mesh import build_mesh

PEAK = {"f64": 1e12, "f32": 2e12, "bf16": 8e12, "f16": 8e12}
LEVELS = (Link("node", 4, 100e9, 1e-6), Link("network", 8, 40e9, 10e-6))
MACHINE = Machine("m", "cuda", PEAK, 1e12, 1e10, 5e-6, 0.5, 0.8, LEVELS)
NODE = Mesh((MeshAxis("a", 3),))
BYTES = 6e9


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


def seconds(kind: StepKind, axes: tuple[int, ...], mesh: Mesh, held: float = 1.0) -> float:
    return price_steps((Step(kind, axes),), mesh, MACHINE, held).seconds(BYTES)


def test_rings_on_one_level() -> None:
    """All-reduce 2(p-1)a + 2(p-1)/p n/B; gather and scatter half of it; all-to-all of the local bytes."""
    assert seconds(StepKind.ALL_REDUCE, (0,), NODE) == pytest.approx(4e-6 + 4 / 3 * BYTES / 100e9)
    assert seconds(StepKind.REDUCE_SCATTER, (0,), NODE) == pytest.approx(2e-6 + 2 / 3 * BYTES / 100e9)
    assert seconds(StepKind.ALL_GATHER, (0,), NODE, held=1 / 3) == pytest.approx(2e-6 + 2 / 3 * BYTES / 100e9)
    assert seconds(StepKind.ALL_TO_ALL, (0,), NODE, held=1 / 3) == pytest.approx(2e-6 + 2 / 9 * BYTES / 100e9)


def test_axes_together_cost_no_more_than_one_after_another() -> None:
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    together = seconds(StepKind.ALL_GATHER, (0, 1), mesh, held=1 / 4)
    one_by_one = seconds(StepKind.ALL_GATHER, (1,), mesh, 1 / 4) + seconds(StepKind.ALL_GATHER, (0,), mesh, 1 / 2)
    assert together == pytest.approx(one_by_one)
    assert seconds(StepKind.ALL_REDUCE, (0, 1), mesh) < 2 * seconds(StepKind.ALL_REDUCE, (0,), mesh)


def test_a_mesh_is_priced_the_same_however_it_is_cut() -> None:
    for first, second in (((8,), (2, 2, 2)), ((16,), (2, 8)), ((16,), (2, 2, 2, 2))):
        machine = load_machine("dgx-a100")
        meshes = [build_mesh(machine, int(np.prod(shape)), shape) for shape in (first, second)]
        prices = [group_price(tuple(range(len(mesh.axes))), mesh, machine) for mesh in meshes]
        assert prices[0].per_byte == pytest.approx(prices[1].per_byte)


def test_the_slowest_link_counts_and_is_shared() -> None:
    """Two nodes of four: groups of one device per node share the 40 GB/s; the group of all has it alone."""
    mesh = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 4, 0)))
    assert group_price((1,), mesh, MACHINE).per_byte == pytest.approx(1 / 100e9)
    assert group_price((0,), mesh, MACHINE).per_byte == pytest.approx(4 / 40e9)
    assert group_price((0, 1), mesh, MACHINE).per_byte == pytest.approx(1 / 40e9)
    assert group_price((0, 1), mesh, MACHINE).latency == pytest.approx(10e-6 + 2 * 1e-6)


def test_local_steps_go_over_memory() -> None:
    speed = 1e12 * 0.8
    assert seconds(StepKind.SLICE, (0,), NODE) == pytest.approx(5e-6 + 2 / 3 * BYTES / speed)
    assert seconds(StepKind.MASK, (0,), NODE) == pytest.approx(5e-6 + 2 * BYTES / speed)
    assert seconds(StepKind.PAD, (0,), NODE, held=1 / 3) == pytest.approx(5e-6 + 4 / 3 * BYTES / speed)


def test_steps_of_a_conversion_follow_what_is_held() -> None:
    """S0 on both axes to whole: the second gather moves twice as much as the first, in one step or two."""
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    sliced = nest((Shard(0), Shard(0)))
    whole = Layout((Invariant(), Invariant()))
    steps = ConversionModel(mesh, MACHINE, load_library()).steps(sliced, whole, (8, 8), 64)
    price = price_steps(steps, mesh, MACHINE, local_fraction(sliced, mesh))
    assert price.per_byte == pytest.approx(3 / 4 / 100e9)
    assert local_fraction(sliced, mesh) == 1 / 4
    assert local_fraction(nest((Partial(), Shard(1))), mesh) == 1 / 2
    assert local_fraction(nest((Replicate(), Invariant())), mesh) == 1


def test_an_exchange_pays_what_arrives() -> None:
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    source, target = Layout((Shard(0, 1), Shard(0, 0))), nest((Shard(0), Shard(0)))
    step = Step(StepKind.EXCHANGE, (0, 1), source=source, target=target)
    price = price_steps((step,), mesh, MACHINE, 1 / 4)
    assert price.per_byte == pytest.approx(1 / 4 / 100e9 + 2 * 2 / 4 / (1e12 * 0.8))


def test_what_a_step_takes_of_the_links() -> None:
    """An all-reduce on two nodes of four: a ring crosses both levels, and the slower link is its price."""
    mesh = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 4, 0)))
    price = price_steps((Step(StepKind.ALL_REDUCE, (0, 1)),), mesh, MACHINE, 1.0)
    found = price.transfer(BYTES)
    assert found.sent == pytest.approx(2 * 7 / 8 * BYTES)
    assert [link.level for link in found.links] == [0, 1]
    assert [link.seconds for link in found.links] == pytest.approx([found.sent / 100e9, found.sent / 40e9])
    assert found.seconds == pytest.approx(found.latency + found.links[1].seconds) == pytest.approx(price.seconds(BYTES))


def test_local_steps_take_no_links() -> None:
    found = price_steps((Step(StepKind.SLICE, (0,)),), NODE, MACHINE, 1.0).transfer(BYTES)
    assert found.links == () and found.sent == 0


def test_links_of_steps_add_up() -> None:
    mesh = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 4, 0)))
    steps = (Step(StepKind.ALL_GATHER, (1,)), Step(StepKind.SLICE, (1,)), Step(StepKind.ALL_REDUCE, (0, 1)))
    held, parts = 1 / 4, []
    for step in steps:
        price, held = price_step(step, mesh, MACHINE, held)
        parts.append(price.transfer(BYTES))
    whole = price_steps(steps, mesh, MACHINE, 1 / 4).transfer(BYTES)
    assert whole.sent == pytest.approx(sum(part.sent for part in parts))
    assert whole.seconds == pytest.approx(sum(part.seconds for part in parts))
    for link in whole.links:
        told = [other.seconds for part in parts for other in part.links if other.level == link.level]
        assert link.seconds == pytest.approx(sum(told))
