"""Prices of groups of mesh axes by NCCL's estimates, on shipped machines and with custom settings."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.plan import Exposure
from unity_dsl.machine.collective_price import price_step
from unity_dsl.machine.device_group import crossings
from unity_dsl.machine.group_price import (
    all_reduce_price,
    all_to_all_price,
    gathering_price,
    partner_seconds,
    permutation_price,
)
from unity_dsl.machine.machine import Collectives, Machine, load_machine, read_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.machine.nccl_price import communicator
from unity_dsl.machine.nccl_settings import NcclSettings
from unity_dsl.machine.price import Price
from unity_dsl.resources import folder
from unity_dsl.syntax.span import Source

H100 = load_machine("dgx-h100")
MiB = 2**20


def summed(devices: int, machine: Machine = H100) -> Price:
    return all_reduce_price((0,), build_mesh(machine, devices, (devices,)), machine)


def gathered(devices: int, machine: Machine = H100) -> Price:
    return gathering_price((0,), build_mesh(machine, devices, (devices,)), machine)


def told(price: Price, count: float) -> tuple[str, float]:
    """The name of the algorithm, and the time in microseconds."""
    return price.algorithm(count).name, price.seconds(count) * 1e6


@pytest.mark.parametrize(
    ("devices", "count", "algorithm", "seconds"),
    [
        (512, 2**16, "ring LL", 6.6 + 448 * 1 + 63 * 2.7 + 65536 / 20.4e3 * 511 / 512),
        (8, 2**16, "ring LL", 6.6 + 7 * 0.6 + 65536 / 141e3 * 7 / 8),
        (8, 64 * MiB, "ring Simple", 8.4 + 7 * 3.4 + 64 * MiB / 370e3 * 7 / 8),
        (64, 64 * MiB, "ring LL128", 14 + 56 * 1.9 + 7 * 4 + 64 * MiB / 0.92 / 384e3 * 63 / 64),
        (2, 2**30, "ring Simple", 8.4 + 3.4 + 2**30 / 370e3 / 2),
    ],
)
def test_gathers(devices: int, count: int, algorithm: str, seconds: float) -> None:
    assert told(gathered(devices), count) == (algorithm, pytest.approx(seconds))


def test_a_small_gather_over_many_devices() -> None:
    """Hops dominate: 630 us for 512 GPUs. An all-reduce by trees takes less than a seventh of that."""
    assert gathered(512).seconds(64e3) == pytest.approx(628e-6, rel=1e-3)
    assert told(summed(512), 64e3)[0] == "tree LL"
    assert summed(512).seconds(64e3) < gathered(512).seconds(64e3) / 7


@pytest.mark.parametrize(
    ("devices", "count", "algorithm", "seconds"),
    [
        (8, 2**16, "ring LL", 6.6 + 14 * 0.6 + 65536 / 141e3 * 14 / 8),
        (8, 2**30, "NVLS Simple", 25 + 2**30 / 476e3 * 14 / 8),
        (2, 2**30, "ring Simple", 8.4 + 2 * 3.4 + 2**30 / 370e3),
        (512, 2**16, "tree LL", 6.8 + 14 * 0.6 + 12 * 5 + 65536 / 10.2e3 / 0.6),
        (512, MiB, "tree LL128", 14 + 14 * 1.25 + 12 * 8.5 + MiB / (0.92 * 0.9375 * 384e3 / 2) / 0.6),
        (512, 2**30, "NVLS tree Simple", 25 + 12 * 20.9 + 2**30 / 364e3 * 1022 / 512),
    ],
)
def test_sums(devices: int, count: int, algorithm: str, seconds: float) -> None:
    assert told(summed(devices), count) == (algorithm, pytest.approx(seconds))


def test_a_group_that_strides_over_nodes() -> None:
    """One rank on each of 64 nodes uses one card, and its hops are not hidden."""
    mesh = build_mesh(H100, 512, (64, 8))
    name, seconds = told(gathering_price((0,), mesh, H100), 2**16)
    assert (name, seconds) == ("PAT Simple", pytest.approx(8 + 24 + 64 * 2.8 + 65536 / 36e3))
    large = all_reduce_price((0,), mesh, H100).transfer(2.0**30)
    assert large.algorithm == "ring Simple"
    assert large.seconds == pytest.approx(1.4 * (8.4e-6 + 126 * 14e-6) + 126 / 64 * 2**30 / 48e9)


def test_sends_are_direct() -> None:
    """To 63 other devices on eight nodes: seven hops of NVLink, and 56 posted messages, the last of which takes a hop.
    Bytes use the card of the device, and NVLink.
    """
    mesh, rate = build_mesh(H100, 64, (64,)), 56 / 64 / 48e3 + 7 / 64 / 370e3
    found = all_to_all_price((0,), mesh, H100)
    assert told(found, 2**30) == ("direct Simple", pytest.approx(8.4 + 7 * 3.4 + 55 * 3 + 14 + 2**30 * rate))
    slow = 56 / 64 / 20.4e3 + 7 / 64 / 20.4e3
    assert told(found, 2**10) == ("direct LL", pytest.approx(6.6 + 7 * 0.6 + 55 * 1 + 2.7 + 2**10 * slow))
    moved = permutation_price((0,), mesh, H100)
    assert told(moved, 2**30) == ("direct Simple", pytest.approx(8.4 + 14 + 2**30 / 48e3))
    within = permutation_price((1,), build_mesh(H100, 64, (8, 8)), H100)
    assert told(within, 2**10) == ("direct LL", pytest.approx(6.6 + 0.6 + 2**10 / 141e3))
    assert partner_seconds((0,), mesh, H100) == pytest.approx(1e-6)  # to post a message
    assert partner_seconds((1,), build_mesh(H100, 64, (8, 8)), H100) == pytest.approx(0.6e-6)  # a hop


def test_the_example_of_the_docs() -> None:
    """The figures of docs/prices.md: the part of an all-to-all over 64 devices of dgx-h100 that leaves the node, and
    small collectives.
    """
    mesh = build_mesh(H100, 64, (64,))
    text = (Path(__file__).parents[2] / "docs" / "prices.md").read_text()
    ((leaving, parts, card),) = re.findall(r"that card: (\d+) / (\d+) / (\d+) seconds a GB", text)
    assert (f"card of {card} GB/s" in text, f"{leaving} of the {parts} parts" in text) == (True, True)
    through_cards = float(leaving) / float(parts) / float(card)
    assert through_cards < all_to_all_price((0,), mesh, H100).seconds(1e9) < 1.2 * through_cards
    ((gather, total),) = re.findall(r"of 64 kB over 512 H100 takes (\d+) µs as a ring, an all-reduce (\d+) µs", text)
    assert gathered(512).seconds(64e3) * 1e6 == pytest.approx(float(gather), abs=0.5)
    assert summed(512).seconds(64e3) * 1e6 == pytest.approx(float(total), abs=0.5)


@pytest.mark.parametrize("name", ["summit", "dgx-a100", "dgx-h100", "h200", "llama3-cluster"])
def test_more_bytes_cost_more(name: str) -> None:
    """Except where a correction of trees ends: there the price changes by no more than the corrections do."""
    machine = load_machine(name)
    mesh = build_mesh(machine, machine.devices)
    groups = [(axis,) for axis in range(len(mesh.axes))] + [tuple(range(len(mesh.axes)))]
    for axes in groups:
        for of_group in (gathering_price, all_reduce_price, all_to_all_price, permutation_price):
            found = of_group(axes, mesh, machine)
            for (start, end), algorithm in zip(
                pairwise((*found.starts, 2 * found.starts[-1] + 1e3)), found.algorithms, strict=True
            ):
                assert algorithm.per_byte > 0
                before, after = found.seconds(start), algorithm.seconds(end)
                assert before < after
                step = found.seconds(end) / after
                if of_group is all_reduce_price:
                    assert 0.6 < step < 1.4 + 1e-9
                    assert step == pytest.approx(1) or (end / 64).is_integer()
                else:
                    assert step == pytest.approx(1)


def test_links_that_a_collective_keeps_busy() -> None:
    """A ring and a tree use all levels at once, those between nodes for as long as the bytes take. In-switch reduction
    uses the links in its node. No link is busy for longer than the bytes take.
    """
    ring = gathered(64).transfer(2.0**30)
    assert ring.algorithm == "ring Simple"
    assert [(link.level, link.seconds) for link in ring.links] == [
        (0, pytest.approx(63 / 64 * 2**30 / 384e9)),
        (1, pytest.approx(63 / 64 * 2**30 / 384e9)),
    ]
    tree = summed(512).transfer(2.0**16)
    assert tree.algorithm == "tree LL" and tree.sent == pytest.approx(2 * 2**16)
    wire = 2 * 2 * 2**16  # half of the bytes are flags
    assert [link.seconds for link in tree.links] == pytest.approx([wire / 370e9, wire / 384e9])
    switch = summed(8).transfer(2.0**30)
    assert switch.algorithm == "NVLS Simple"
    assert [(link.level, link.seconds) for link in switch.links] == [(0, pytest.approx(9 / 8 * 2**30 / 370e9))]
    for devices in (8, 64, 512):
        for price in (gathered(devices), summed(devices)):
            for algorithm in price.algorithms:
                assert all(link.seconds <= algorithm.per_byte for link in algorithm.links)


def test_a_faster_machine_takes_its_part_of_the_time() -> None:
    """The time that devices spend behind their hosts' launches counts by its exposed fraction."""
    hidden = H100.exposing(Exposure(devices=0.25))
    for devices in (8, 64, 512):
        for of_group in (gathered, summed):
            first, second = of_group(devices), of_group(devices, hidden)
            for count in (1e3, 1e6, 1e9):
                assert second.seconds(count) == pytest.approx(0.25 * first.seconds(count))
                links = zip(second.transfer(count).links, first.transfer(count).links, strict=True)
                assert all(one.seconds == pytest.approx(0.25 * other.seconds) for one, other in links)


def test_settings_count() -> None:
    """Hosts that take longer to post, no in-switch reduction, rings slower than the levels allow, PCI in the node."""

    def having(settings: NcclSettings) -> Machine:
        return replace(H100, collectives=Collectives(nccl=settings))

    amd = gathered(512, having(NcclSettings(host="amd")))
    assert told(amd, 2**16) == ("ring LL", pytest.approx(6.6 + 448 * 2 + 63 * 2.7 + 65536 / 19e3 * 511 / 512))
    plain = summed(8, having(NcclSettings(nvls=False)))
    assert told(plain, 2**30) == ("ring Simple", pytest.approx(8.4 + 14 * 3.4 + 2**30 / 370e3 * 14 / 8))
    ring = gathered(8, having(NcclSettings(ring=340e9)))
    assert told(ring, 2**30) == ("ring Simple", pytest.approx(8.4 + 7 * 3.4 + 2**30 / 340e3 * 7 / 8))
    pci = summed(8, having(NcclSettings(link="pci")))
    assert told(pci, 2**30) == ("ring Simple", pytest.approx(8.4 + 14 * 5.7 + 2**30 / 370e3 * 14 / 8))
    assert all("LL128" not in algorithm.name for algorithm in pci.algorithms)


def test_islands_are_joined_by_hosts() -> None:
    """The six V100 of a Summit node form two islands: a ring has hops like PCI's, and the 32 GB/s
    between the islands.
    """
    machine = load_machine("summit")
    mesh, islands = build_mesh(machine, 192, (32, 6)), build_mesh(machine, 192, (64, 3))
    node = communicator(crossings((1,), mesh, machine), 6, machine)
    island = communicator(crossings((1,), islands, machine), 3, machine)
    assert (node.link, node.bandwidth, node.nodes) == ("pci", 32e9, 1)
    assert (island.link, island.bandwidth, island.nvls) == ("nvlink", 40e9, 0)
    every = communicator(crossings((0, 1), mesh, machine), 192, machine)
    assert (every.ranks, every.nodes, every.bandwidth) == (192, 32, pytest.approx(23e9))


def test_racks_and_pods_are_nodes_of_one_network() -> None:
    machine = load_machine("llama3-cluster")
    mesh = build_mesh(machine, 6144, (2, 3072))
    every = communicator(crossings((0, 1), mesh, machine), 6144, machine)
    assert (every.nodes, every.per_node, every.bandwidth) == (768, 8, pytest.approx(384e9))
    pods = communicator(crossings((0,), mesh, machine), 2, machine)
    assert (pods.nodes, pods.bandwidth) == (2, pytest.approx(21065e9 / 3072))


def test_measured_times_win() -> None:
    measured = """
[[collective]]
kind = "all_reduce"
devices = 8
bytes = [1000, 1000000]
time_us = [110, 10100]
"""
    text = (folder("machines") / "dgx-h100.toml").read_text()
    machine = read_machine(Source("mine.toml", text + measured))
    assert machine.collectives.nccl is not None
    mesh = build_mesh(machine, 8, (8,))
    found = price_step(Step(StepKind.ALL_REDUCE, (0,)), mesh, machine, 1.0)[0]
    assert found.seconds(5e5) == pytest.approx(100e-6 + 5e5 * 1e-8)
    other = price_step(Step(StepKind.ALL_GATHER, (0,)), mesh, machine, 1 / 8)[0]
    assert other == price_step(Step(StepKind.ALL_GATHER, (0,)), mesh, H100, 1 / 8)[0]
