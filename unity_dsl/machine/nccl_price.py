"""Prices of collectives over groups of mesh axes as NCCL runs them, and the links that they keep busy.

A group's nodes and ranks per node follow from its mesh axes. Within a node, the bandwidth of a ring is that of the
slowest level that the group crosses. Between nodes, it is the sum over the network cards of the group's ranks in one
node, or what racks and pods give if that is less. For two nodes NCCL takes the bandwidth of the links within a node;
here two nodes have that of the cards, as more nodes do.

NCCL has no estimate for point-to-point sends. A device sends to its peers one message after the other. A message within
the node takes a hop. A message between nodes takes the time to post it, and the last one also takes the hop. Bytes go
over the link of their level. LL has half of the link's bandwidth, and no more than a ring has; LL128 is not used for
sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from ..graph.collective_steps import StepKind
from .device_group import Crossing
from .machine import Machine
from .nccl_settings import NcclSettings
from .nccl_tuning import (
    BASE_LATENCY,
    LL_RING,
    Algorithm,
    Communicator,
    Protocol,
    Tuned,
    nvls_of,
    tuned,
)
from .price import AlgorithmPrice, LinkTime, Price, cheapest, least

WIRE = {Protocol.LL: 2.0, Protocol.LL128: 128 / 120, Protocol.SIMPLE: 1.0}
"""Bytes on the links for each byte of data: flags take 4 of 8 bytes (LL), 8 of 128 (LL128), or are apart (Simple)."""
DIRECT = (Protocol.LL, Protocol.SIMPLE)


@lru_cache(maxsize=4096)
def collective_price(kind: StepKind, levels: tuple[Crossing, ...], size: int, machine: Machine) -> Price:
    """The price of an all-gather, a reduce-scatter or an all-reduce in a group of `size` that crosses these levels."""
    group = communicator(levels, size, machine)
    found = tuned(kind, group)
    return least([_priced(one, kind, levels, size, machine) for one in found])


def sends_price(
    levels: tuple[Crossing, ...], peers: Sequence[int], parts: Sequence[float], size: int, machine: Machine
) -> Price:
    """The price of messages to `peers` at each level; `parts` are the fractions of the counted bytes by level."""
    group, slowed = communicator(levels, size, machine), machine.exposure.devices
    inside = [number for number, level in enumerate(levels) if not machine.levels[level.level].network]
    outside = sum(peers) - sum(peers[number] for number in inside)
    found = []
    for protocol in DIRECT:
        latency = BASE_LATENCY[Algorithm.RING][_POSTED[protocol]] * 1e-6
        latency += sum(peers[number] * _hop(levels[number], group, protocol, machine) for number in inside)
        if outside:
            latency += (outside - 1) * group.posting[_POSTED[protocol]]
            latency += group.network_hop(Algorithm.RING, protocol)
        rates = [level.rate * slowed for level in levels]
        if protocol is Protocol.LL:
            rates = [min(LL_RING * rate, group.ll_limit) for rate in rates]
        times = [part / rate * slowed for part, rate in zip(parts, rates, strict=True)]
        wires = [WIRE[protocol] * part / level.rate for part, level in zip(parts, levels, strict=True)]
        links = _links(levels, map(min, wires, times))
        found.append(AlgorithmPrice(f"direct {protocol}", latency * slowed, sum(times), links, sum(parts)))
    return cheapest(found)


def message_seconds(farthest: Crossing, levels: tuple[Crossing, ...], size: int, machine: Machine) -> float:
    """Seconds that one more small message takes over a level: a hop within a node, else the time to post it."""
    group = communicator(levels, size, machine)
    if machine.levels[farthest.level].network:
        return group.posting[_POSTED[Protocol.LL]] * machine.exposure.devices
    return _hop(farthest, group, Protocol.LL, machine) * machine.exposure.devices


def _hop(level: Crossing, group: Communicator, protocol: Protocol, machine: Machine) -> float:
    """Seconds of a hop of a message within a node."""
    return replace(group, link=_link(level, machine)).hop(Algorithm.RING, protocol)


_POSTED = {Protocol.LL: 0, Protocol.SIMPLE: 2}
"""Indices into triples, by protocol."""


def communicator(levels: Sequence[Crossing], size: int, machine: Machine) -> Communicator:
    """A group as NCCL sees it. Bandwidths are those of the machine before `Machine.exposing` made it faster."""
    settings, slowed = machine.collectives.nccl or NcclSettings(), machine.exposure.devices
    inside = [level for level in levels if not machine.levels[level.level].network]
    between = [level for level in levels if machine.levels[level.level].network]
    per_node = between[0].members if between else size
    link = next((_link(level, machine) for level in reversed(inside)), settings.link)
    has_nvls = settings.nvls and settings.generation == "hopper" and link == "nvlink" and bool(inside)
    nvls = nvls_of(per_node, inside[0].rate * slowed) if has_nvls else 0.0
    bandwidth = min(level.unit_rate for level in between or inside) * slowed
    return Communicator(
        ranks=size,
        nodes=between[0].all_units if between else 1,
        bandwidth=bandwidth if between or settings.ring is None else settings.ring,
        channels=settings.network_channels if between else settings.channels,
        generation=settings.generation,
        host=settings.host,
        link=link,
        nvls=nvls,
        nvls_channels=per_node if nvls else 0,
    )


def _link(level: Crossing, machine: Machine) -> str:
    """The kind of link of a level within a node: the machine's at the first level, PCI through the hosts at others."""
    settings = machine.collectives.nccl or NcclSettings()
    return settings.link if level.level == 0 else "pci"


def _priced(one: Tuned, kind: StepKind, levels: Sequence[Crossing], size: int, machine: Machine) -> Price:
    slowed = machine.exposure.devices
    sent, wires = _sent(one, kind, levels, size, machine)
    algorithms = []
    for piece in one.pieces:
        per_byte = slowed / piece.bandwidth
        links = _links(levels, (min(wire, per_byte) for wire in wires))
        algorithms.append(AlgorithmPrice(one.name, piece.latency * slowed, per_byte, links, sent))
    return Price(tuple(algorithms), tuple(piece.start for piece in one.pieces))


def _sent(
    one: Tuned, kind: StepKind, levels: Sequence[Crossing], size: int, machine: Machine
) -> tuple[float, list[float]]:
    """Bytes that a device sends for each counted byte, and the seconds per byte for which each level is busy.

    A ring and PAT send all but a device's own part, a tree sends all of it; for a sum, both do so twice. With a switch
    that adds and copies, a device sends the data to be summed, and for an all-reduce also its part of the sum. In an
    all-gather it receives all other parts.
    """
    passes = 2 if kind is StepKind.ALL_REDUCE else 1
    ring = passes * (size - 1) / size
    sent = {Algorithm.RING: ring, Algorithm.PAT: ring, Algorithm.TREE: 2.0}.get(one.algorithm)
    if sent is not None:
        wire = WIRE[one.protocol] * sent
        return sent, [wire / level.unit_rate for level in levels]
    per_node = next((level.members for level in levels if machine.levels[level.level].network), size)
    into = {StepKind.ALL_REDUCE: 1 + 1 / per_node, StepKind.REDUCE_SCATTER: 1.0}.get(kind, ring)
    network = [machine.levels[level.level].network for level in levels]
    return into, [(ring if far else into) / level.unit_rate for far, level in zip(network, levels, strict=True)]


def _links(levels: Sequence[Crossing], times: Iterable[float]) -> tuple[LinkTime, ...]:
    return tuple(LinkTime(level.level, time) for level, time in zip(levels, times, strict=True) if time)
