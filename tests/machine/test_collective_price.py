"""Prices of collectives against their formulas, computed by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import inf
from random import Random

import pytest

from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.layout import Invariant, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, nest
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.collective_price import local_fraction, price_copies, price_step, price_steps
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.device_group import crossings
from unity_dsl.machine.group_price import (
    all_reduce_price,
    all_to_all_price,
    gathering_price,
    permutation_price,
)
from unity_dsl.machine.machine import Collectives, Link, Machine, load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.machine.price import Price

PEAK = {"f64": 1e12, "f32": 2e12, "bf16": 8e12, "f16": 8e12}
LEVELS = (Link("node", 4, 100e9, 1e-6), Link("network", 8, 40e9, 10e-6))
MACHINE = Machine("m", "cuda", PEAK, 1e12, 1e10, 5e-6, 0.5, 0.8, LEVELS)
NODE = Mesh((MeshAxis("a", 3),))
BYTES = 6e9


def price(kind: StepKind, axes: tuple[int, ...], mesh: Mesh, held: float = 1.0) -> Price:
    return price_steps((Step(kind, axes),), mesh, MACHINE, held)


def seconds(kind: StepKind, axes: tuple[int, ...], mesh: Mesh, held: float = 1.0) -> float:
    return price(kind, axes, mesh, held).seconds(BYTES)


def test_one_level() -> None:
    """Three devices: a ring gathers or scatters in two hops and all-reduces in four. An all-to-all takes two sends."""
    assert seconds(StepKind.ALL_REDUCE, (0,), NODE) == pytest.approx(5e-6 + 4e-6 + 4 / 3 * BYTES / 100e9)
    assert seconds(StepKind.REDUCE_SCATTER, (0,), NODE) == pytest.approx(5e-6 + 2e-6 + 2 / 3 * BYTES / 100e9)
    assert seconds(StepKind.ALL_GATHER, (0,), NODE, 1 / 3) == pytest.approx(5e-6 + 2e-6 + 2 / 3 * BYTES / 100e9)
    assert seconds(StepKind.ALL_TO_ALL, (0,), NODE, 1 / 3) == pytest.approx(5e-6 + 2e-6 + 2 / 9 * BYTES / 100e9)


def test_the_cheapest_algorithm_for_the_bytes() -> None:
    """All-reduce over four devices: four hops of a tree that sends two tensors, or six of a ring that sends 3/2 of one.
    They are equal at 400 kB.
    """
    found = price(StepKind.ALL_REDUCE, (0,), Mesh((MeshAxis("a", 4),)))
    assert found.seconds(1e3) == pytest.approx(5e-6 + 4e-6 + 2 * 1e3 / 100e9)
    assert found.seconds(1e9) == pytest.approx(5e-6 + 6e-6 + 3 / 2 * 1e9 / 100e9)
    assert [found.algorithm(count).name for count in (3.9e5, 4.1e5)] == ["tree", "ring"]


def test_rings_and_trees() -> None:
    """Eight nodes of four devices, which share 40 GB/s: 10 GB/s each."""
    mesh = Mesh((MeshAxis("a", 8, 1), MeshAxis("b", 4, 0)))
    both = price(StepKind.ALL_REDUCE, (0, 1), mesh)
    assert both.algorithm(1e3).name == both.algorithm(1e6).name == "tree"
    assert both.seconds(1e6) == pytest.approx(5e-6 + 2 * (2 * 1e-6 + 3 * 10e-6) + 2 * 1e6 / 40e9)
    assert both.algorithm(1e9).name == "ring"
    assert both.seconds(1e9) == pytest.approx(5e-6 + 2 * (24 * 1e-6 + 7 * 10e-6) + 2 * 31 / 32 * 1e9 / 40e9)
    gathered = price(StepKind.ALL_GATHER, (0, 1), mesh, 1 / 32)
    for count in (1e3, 1e9):
        assert gathered.seconds(count) == pytest.approx(5e-6 + 24e-6 + 70e-6 + 31 / 32 * count / 40e9)


def test_all_to_all_shares_the_cards() -> None:
    """Over 8 nodes of 4 devices: 28 of 32 blocks leave the node at the device's share of 40 GB/s. A device sends to one
    device after the other.
    """
    mesh = Mesh((MeshAxis("a", 8, 1), MeshAxis("b", 4, 0)))
    found = price(StepKind.ALL_TO_ALL, (0, 1), mesh)
    sent = BYTES * (28 / 32 / 10e9 + 3 / 32 / 100e9)
    assert found.seconds(BYTES) == pytest.approx(5e-6 + 3 * 1e-6 + 28 * 10e-6 + sent, rel=1e-12)
    assert seconds(StepKind.ALL_TO_ALL, (1,), mesh) == pytest.approx(5e-6 + 3e-6 + 3 / 4 * BYTES / 100e9)


def test_axes_together_cost_no_more_than_one_after_another() -> None:
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    together = seconds(StepKind.ALL_GATHER, (0, 1), mesh, held=1 / 4)
    one_by_one = seconds(StepKind.ALL_GATHER, (1,), mesh, 1 / 4) + seconds(StepKind.ALL_GATHER, (0,), mesh, 1 / 2)
    assert together == pytest.approx(one_by_one - 5e-6 + 1e-6)  # one launch less, three hops of a ring in place of two
    assert seconds(StepKind.ALL_REDUCE, (0, 1), mesh) < 2 * seconds(StepKind.ALL_REDUCE, (0,), mesh)


@pytest.mark.parametrize(
    ("machine", "devices", "coarse", "fine", "groups"),
    [
        ("dgx-a100", 16, (16,), (2, 2, 4), {(0,): (0, 1, 2)}),
        ("dgx-a100", 64, (8, 8), (2, 4, 8), {(0,): (0, 1), (1,): (2,), (0, 1): (0, 1, 2)}),
        ("dgx-a100", 12, (12,), (3, 4), {(0,): (0, 1)}),
        ("summit", 192, (32, 6), (32, 2, 3), {(0,): (0,), (1,): (1, 2)}),
        ("summit", 192, (8, 24), (8, 4, 6), {(1,): (1, 2), (0,): (0,)}),
        ("llama3-cluster", 6144, (2, 3072), (2, 192, 16), {(1,): (1, 2), (0, 1): (0, 1, 2)}),
    ],
)
def test_groups_of_the_same_devices_have_the_same_price(
    machine: str,
    devices: int,
    coarse: tuple[int, ...],
    fine: tuple[int, ...],
    groups: dict[tuple[int, ...], tuple[int, ...]],
) -> None:
    found = load_machine(machine)
    meshes = [build_mesh(found, devices, shape) for shape in (coarse, fine)]
    for pair in groups.items():
        for of_group in (gathering_price, all_reduce_price, all_to_all_price, permutation_price):
            first, second = (of_group(axes, mesh, found) for axes, mesh in zip(pair, meshes, strict=True))
            assert first == second, (pair, of_group)


def test_what_crosses_which_level() -> None:
    """Summit: an axis over nodes crosses the network only. An axis of six in a node crosses its islands of three and
    the link between them.
    """
    machine = load_machine("summit")
    mesh = build_mesh(machine, 192, (32, 6))
    nodes, inside = (crossings((axis,), mesh, machine) for axis in (0, 1))
    assert [(level.level, level.units, level.members, level.peers) for level in nodes] == [(2, 32, 1, 31)]
    assert [(level.level, level.units, level.members, level.peers) for level in inside] == [(0, 3, 1, 2), (1, 2, 3, 3)]
    assert nodes[0].rate == pytest.approx(23e9 / 6)
    both = crossings((0, 1), mesh, machine)
    assert [level.all_units for level in both] == [192, 64, 32]
    assert sum(level.peers for level in both) == 191


def test_a_device_sends_no_more_than_its_card() -> None:
    """A device sends a quarter of the node's 40 GB/s, or less if its own card is slower."""
    mesh = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 4, 0)))
    for own, reached in ((inf, 10e9), (10e9, 10e9), (5e9, 5e9)):
        machine = replace(MACHINE, levels=(LEVELS[0], replace(LEVELS[1], device_bandwidth=own)))
        (level,) = crossings((0,), mesh, machine)
        assert level.rate == reached
        assert all_to_all_price((0,), mesh, machine).seconds(1e9) == pytest.approx(15e-6 + 1e9 / 2 / reached)
        both = crossings((0, 1), mesh, machine)[1]
        assert both.unit_rate == 4 * reached


def test_textbook_formulas_on_two_levels() -> None:
    """The minimum over all algorithms, each written out for n nodes of m devices, for small and large tensors."""
    rng = Random(5)
    for _ in range(200):
        m, n, launch = rng.choice((2, 4, 8)), rng.choice((2, 4, 8, 16)), 10 ** rng.uniform(-7, -5)
        links = [(10 ** rng.uniform(9, 11), 10 ** rng.uniform(-7, -4)) for _ in range(2)]
        (b, h), (unit, g) = links
        levels = Link("node", m, b, h), Link("network", n, unit, g)
        machine = replace(MACHINE, levels=levels, launch_seconds=launch)
        mesh, p = Mesh((MeshAxis("a", n, 1), MeshAxis("b", m, 0))), m * n
        c, low, high = unit / m, m.bit_length() - 1, n.bit_length() - 1
        for count in (10**e for e in range(2, 11)):
            ring = launch + (p - n) * h + (n - 1) * g + (p - 1) / p * count * max(1 / b, 1 / unit)
            tree = launch + 2 * (low * h + high * g) + 2 * count * max(1 / b, 1 / unit)
            direct = launch + (m - 1) * h + (p - m) * g + count * ((m - 1) / p / b + (p - m) / p / c)
            told = [of_group((0, 1), mesh, machine).seconds(count) for of_group in ALL]
            assert told == pytest.approx([ring, min(2 * ring - launch, tree), direct], rel=1e-9)


ALL = gathering_price, all_reduce_price, all_to_all_price


@pytest.mark.parametrize("name", ["local", "summit", "dgx-h100", "llama3-cluster"])
def test_more_bytes_cost_more(name: str) -> None:
    """Priced by levels alone. Twice as many bytes cost at most twice as much, and the algorithms are ordered by
    latency.
    """
    machine = replace(load_machine(name), collectives=Collectives())
    mesh = build_mesh(machine, machine.devices)
    groups = [(axis,) for axis in range(len(mesh.axes))] + [tuple(range(len(mesh.axes)))]
    counts = [10 ** (e / 4) for e in range(4, 60)]
    for axes, of_group in product(groups, ALL):
        found = of_group(axes, mesh, machine)
        times = [found.seconds(count) for count in counts]
        assert all(a < b for a, b in pairwise(times))
        assert all(found.seconds(2 * count) <= 2 * time for count, time in zip(counts, times, strict=True))
        latencies = [algorithm.latency for algorithm in found.algorithms]
        assert latencies == sorted(latencies)


def test_local_steps_go_over_memory() -> None:
    speed = 1e12 * 0.8
    assert seconds(StepKind.SLICE, (0,), NODE) == 0
    assert seconds(StepKind.MASK, (0,), NODE) == pytest.approx(5e-6 + BYTES / speed)
    assert seconds(StepKind.PAD, (0,), NODE, held=1 / 3) == pytest.approx(5e-6 + 4 / 3 * BYTES / speed)


@pytest.mark.parametrize(
    ("step", "copies"),
    [
        (Step(StepKind.ALL_GATHER, (0,), 0), []),
        (Step(StepKind.ALL_GATHER, (0,), 1), [1.0]),
        (Step(StepKind.REDUCE_SCATTER, (0,), 0), []),
        (Step(StepKind.REDUCE_SCATTER, (0,), 2), [0.5]),
        (Step(StepKind.ALL_TO_ALL, (0,), 0, 1), [0.5]),
        (Step(StepKind.ALL_TO_ALL, (0,), 1, 0), [1.0]),
        (Step(StepKind.ALL_TO_ALL, (0,), 1, 2), [0.5, 1.0]),
        (Step(StepKind.ALL_REDUCE, (0,)), []),
    ],
)
def test_blocks_of_other_dimensions_than_the_first_are_copied(step: Step, copies: list[float]) -> None:
    """A device has half of the tensor before the step and all of it after. Each copy reads and writes the given
    fraction.
    """
    machine = load_machine("dgx-a100")
    speed = machine.memory_bandwidth * machine.memory_efficiency
    found = price_copies(step, machine, 0.5, 1.0).seconds(BYTES)
    assert found == pytest.approx(sum(machine.launch_seconds + 2 * part * BYTES / speed for part in copies))


def test_steps_of_a_conversion_follow_what_is_held() -> None:
    """S0 on both axes to whole: the second gather moves twice as much as the first, in one step or in two."""
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    sliced = nest((Shard(0), Shard(0)))
    whole = Layout((Invariant(), Invariant()))
    steps = ConversionModel(mesh, MACHINE, load_library()).steps(sliced, whole, (8, 8), 64)
    (gather,) = price_steps(steps, mesh, MACHINE, local_fraction(sliced, mesh)).algorithms
    assert gather.per_byte == pytest.approx(3 / 4 / 100e9)
    assert local_fraction(sliced, mesh) == 1 / 4
    assert local_fraction(nest((Partial(), Shard(1))), mesh) == 1 / 2
    assert local_fraction(nest((Replicate(), Invariant())), mesh) == 1


def test_an_exchange_pays_what_arrives() -> None:
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    source, target = Layout((Shard(0, 1), Shard(0, 0))), nest((Shard(0), Shard(0)))
    step = Step(StepKind.EXCHANGE, (0, 1), source=source, target=target)
    (exchange,) = price_steps((step,), mesh, MACHINE, 1 / 4).algorithms
    assert exchange.per_byte == pytest.approx(1 / 4 / 100e9 + 2 * 2 / 4 / (1e12 * 0.8))


def test_what_a_step_takes_of_the_links() -> None:
    """An all-reduce on eight nodes of four: a ring and a tree use both levels at once, and the slower link sets the
    price. An all-to-all uses one level after the other.
    """
    mesh = Mesh((MeshAxis("a", 8, 1), MeshAxis("b", 4, 0)))
    large, small = (price(StepKind.ALL_REDUCE, (0, 1), mesh).transfer(count) for count in (BYTES, 1e4))
    direct = price(StepKind.ALL_TO_ALL, (0, 1), mesh).transfer(BYTES)
    assert (large.algorithm, small.algorithm, direct.algorithm) == ("ring", "tree", "direct")
    assert large.sent == pytest.approx(2 * 31 / 32 * BYTES)
    assert small.sent == pytest.approx(2 * 1e4)
    for found in (large, small):
        assert [link.level for link in found.links] == [0, 1]
        assert [link.seconds for link in found.links] == pytest.approx([found.sent / 100e9, found.sent / 40e9])
        assert found.seconds == pytest.approx(found.latency + found.links[1].seconds)
    assert [link.seconds for link in direct.links] == pytest.approx([3 / 32 * BYTES / 100e9, 28 / 32 * BYTES / 10e9])
    assert direct.seconds == pytest.approx(direct.latency + sum(link.seconds for link in direct.links))


def test_local_steps_take_no_links() -> None:
    found = price_steps((Step(StepKind.SLICE, (0,)),), NODE, MACHINE, 1.0).transfer(BYTES)
    assert found.links == () and found.sent == 0


def test_links_of_steps_add_up() -> None:
    mesh = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 4, 0)))
    steps = (Step(StepKind.ALL_GATHER, (1,)), Step(StepKind.SLICE, (1,)), Step(StepKind.ALL_REDUCE, (0, 1)))
    held, parts = 1 / 4, []
    for step in steps:
        one, held = price_step(step, mesh, MACHINE, held)
        parts.append(one.transfer(BYTES))
    whole = price_steps(steps, mesh, MACHINE, 1 / 4).transfer(BYTES)
    assert whole.sent == pytest.approx(sum(part.sent for part in parts))
    assert whole.seconds == pytest.approx(sum(part.seconds for part in parts))
    for link in whole.links:
        told = [other.seconds for part in parts for other in part.links if other.level == link.level]
        assert link.seconds == pytest.approx(sum(told))
