"""NCCL's cost model of collectives, by which it chooses an algorithm and a protocol.

Every pair of an algorithm and a protocol takes `latency + bytes / bandwidth`; NCCL runs the cheapest. The constants and
formulas are facts of NCCL's source, file src/graph/tuning.cc: read in version 2.28.3, with the latency of NVLS trees
over the network and the 24th correction of trees of June 2026. Broadcasts, reductions in switches (CollNet) and several
operations launched at once are left out.

Latencies in tables are microseconds and bandwidths GB/s; functions return seconds and bytes per second. Triples are by
protocol: LL, LL128, Simple. For all-gather and reduce-scatter, bytes are those of the whole tensor; for all-reduce,
those that one device holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..graph.collective_steps import StepKind


class Protocol(StrEnum):
    """How data and the flags that signal its arrival share a link."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


class Algorithm(StrEnum):
    RING = "ring"
    TREE = "tree"
    NVLS = "NVLS"
    NVLS_TREE = "NVLS tree"
    PAT = "PAT"


Triple = tuple[float, float, float]

GENERATIONS = ("volta", "ampere", "hopper")
HOSTS = ("intel", "amd")
LINKS = ("nvlink", "pci")
NETWORK = "network"

BASE_LATENCY: dict[Algorithm, Triple] = {
    Algorithm.RING: (6.6, 14.0, 8.4),
    Algorithm.TREE: (6.8, 14.0, 8.4),
    Algorithm.NVLS: (0.0, 0.0, 0.0),
    Algorithm.NVLS_TREE: (0.0, 0.0, 0.0),
    Algorithm.PAT: (8.0, 8.0, 8.0),
}
HOP_LATENCY: dict[str, dict[Algorithm, Triple]] = {
    "nvlink": {
        Algorithm.RING: (0.6, 1.9, 3.4),
        Algorithm.TREE: (0.6, 1.25, 4.0),
        Algorithm.NVLS: (0.0, 0.0, 25.0),
        Algorithm.NVLS_TREE: (0.0, 0.0, 25.0),
        Algorithm.PAT: (0.0, 0.0, 4.0),
    },
    "pci": {
        Algorithm.RING: (1.0, 2.5, 5.7),
        Algorithm.TREE: (1.0, 1.9, 4.0),
        Algorithm.PAT: (0.0, 0.0, 4.0),
    },
    NETWORK: {
        Algorithm.RING: (2.7, 4.0, 14.0),
        Algorithm.TREE: (5.0, 8.5, 14.0),
        Algorithm.NVLS: (0.0, 0.0, 18.0),
        Algorithm.NVLS_TREE: (0.0, 0.0, 20.9),
        Algorithm.PAT: (0.0, 0.0, 14.0),
    },
}
POSTING = {"intel": 1.0, "amd": 2.0}
"""The host's time to post a message to a network card; three times as long with Simple."""
SIMPLE_POSTS = 3

LL_IN_NODE = {"volta": 39.0, "ampere": 87.7, "hopper": 141.0}
LL_BETWEEN_NODES = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}
"""Bandwidth limit of the whole group: over two nodes, and over more."""
RING_LL128_OF_CHANNEL = {"volta": 20.0, "ampere": 20.0, "hopper": 36.7}
TREE_OF_CHANNEL: dict[str, Triple] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
}
"""Limits in one node, over two, over more; the next two tables have the same order."""
TREE_LL128_OF_CHANNEL: dict[str, Triple] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),
}
NVLS_TREE_OF_CHANNEL = {"hopper": (0.0, 57.7, 45.5)}
NVLS_EFFICIENCY = {"hopper": 0.85}
"""Generations that are missing here have no NVLS."""
NVLS_CHANNEL_SPEEDS = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
"""Bandwidths that NCCL tries for an NVLS channel on Hopper, in src/graph/search.cc."""
PLATEAU = {"volta": 1.9, "ampere": 1.4, "hopper": 1.4}
"""Latency factor of a ring all-reduce with Simple over several nodes."""
PLATEAU_BYTES = 64
"""Bytes for each channel and rank, from which on PLATEAU applies."""

LL_RING, LL128_RING = 0.5, 0.92
TREE_SHARE = 0.92
LL_TREE = 1 / 3.8
LL128_TREE_IN_NODE, LL128_TREE = 7 / 9, 120 / 128
PAT_SHARE = 0.75
PAT_HOPS, PAT_OF_RANK = 3.5, 2.8

TREE_FROM = 64
"""Bytes from which a tree's bandwidth is multiplied by a factor, one for each power of two; 1 below and above."""
TREE_FACTORS: dict[Protocol, tuple[float, ...]] = {
    Protocol.LL: (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    ),
    Protocol.LL128: (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    Protocol.SIMPLE: (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}


@dataclass(frozen=True)
class Communicator:
    """A group of `ranks` on `nodes`, equally many on each. `bandwidth` is that of a ring, bytes per second: the number
    of channels times the bandwidth of one, in a node, or between nodes if there are several. `nvls` is the same for
    NVLS in a node, 0 without NVLS. `link` is the slowest kind of link in a node.
    """

    ranks: int
    nodes: int
    bandwidth: float
    channels: int
    generation: str = "hopper"
    host: str = "intel"
    link: str = "nvlink"
    nvls: float = 0.0
    nvls_channels: int = 0

    @property
    def per_node(self) -> float:
        return self.ranks / self.nodes

    @property
    def posting(self) -> Triple:
        """Seconds to post a message to a network card, by protocol; none in one node."""
        once = POSTING[self.host] * 1e-6 if self.nodes > 1 else 0.0
        return once, once, SIMPLE_POSTS * once

    @property
    def ll_limit(self) -> float:
        """Bandwidth limit of LL, bytes per second: set by the GPUs within a node, by the hosts between nodes."""
        if self.nodes == 1:
            return LL_IN_NODE[self.generation] * 1e9
        return LL_BETWEEN_NODES[self.host][self.nodes > 2] * 1e9

    def hop(self, algorithm: Algorithm, protocol: Protocol) -> float:
        """Seconds of a hop in a node."""
        return HOP_LATENCY[self.link][algorithm][_PLACES[protocol]] * 1e-6

    def network_hop(self, algorithm: Algorithm, protocol: Protocol) -> float:
        """Seconds of a hop between nodes. With one rank a node nothing hides the hop, and all algorithms have the
        latency of a tree.
        """
        of = Algorithm.TREE if self.ranks == self.nodes else algorithm
        return HOP_LATENCY[NETWORK][of][_PLACES[protocol]] * 1e-6

    @property
    def has_ll128(self) -> bool:
        """Only GPUs with NVLink between them keep the order of writes that LL128 needs."""
        return self.link == "nvlink" or self.ranks == self.nodes


@dataclass(frozen=True, slots=True)
class Piece:
    """A cost of `latency + bytes / bandwidth` seconds, valid from `start` bytes on."""

    start: float
    latency: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """The cost of one algorithm with one protocol, in pieces by bytes, each up to the start of the next."""

    algorithm: Algorithm
    protocol: Protocol
    pieces: tuple[Piece, ...]

    @property
    def name(self) -> str:
        return f"{self.algorithm} {self.protocol}"


def tuned(kind: StepKind, group: Communicator) -> tuple[Tuned, ...]:
    """All algorithms and protocols that NCCL has for an all-reduce, an all-gather or a reduce-scatter."""
    found = [_ring(kind, group, protocol) for protocol in _protocols(group)]
    if kind is StepKind.ALL_REDUCE:
        found += [_tree(group, protocol) for protocol in _protocols(group)]
        if group.nodes > 1 and group.nvls:
            found.append(_nvls_tree(group))
    elif 1 < group.ranks == group.nodes:
        found.append(_pat(group))
    if group.nodes == 1 and group.nvls:
        found.append(_nvls(kind, group))
    return tuple(found)


def nvls_of(ranks: int, link: float) -> float:
    """Bytes per second of all NVLS channels of `ranks` GPUs of a node, each of which sends `link`; 0 for too few ranks.

    NCCL gives each GPU a channel of which it is the head. A GPU sends twice a channel's bandwidth in its own channel,
    and once in each other (src/graph/search.cc): this gives 8 channels of 40 GB/s in a DGX H100. NCCL does not use NVLS
    for two GPUs (src/transport/nvls.cc).
    """
    if ranks <= 2:
        return 0.0
    most = link / (ranks + 1) / 1e9
    return ranks * next((speed for speed in NVLS_CHANNEL_SPEEDS if speed <= most), 0.0) * 1e9


_PLACES = {Protocol.LL: 0, Protocol.LL128: 1, Protocol.SIMPLE: 2}


def _protocols(group: Communicator) -> Iterator[Protocol]:
    yield from (protocol for protocol in Protocol if protocol is not Protocol.LL128 or group.has_ll128)


def _base(algorithm: Algorithm, protocol: Protocol) -> float:
    return BASE_LATENCY[algorithm][_PLACES[protocol]] * 1e-6


def _of_channels(table: Triple, group: Communicator) -> float:
    """The bandwidth limit of all channels, from a table for one node, two, or more."""
    return group.channels * table[min(group.nodes, 3) - 1] * 1e9


def _steps(kind: StepKind, units: int) -> int:
    return (2 if kind is StepKind.ALL_REDUCE else 1) * (units - 1)


def _log2(nodes: int) -> int:
    """Rounded down, as NCCL does."""
    return nodes.bit_length() - 1


def _ring(kind: StepKind, group: Communicator, protocol: Protocol) -> Tuned:
    bus = group.bandwidth
    if protocol is Protocol.LL:
        bus = min(LL_RING * bus, group.ll_limit)
    elif protocol is Protocol.LL128:
        bus = min(LL128_RING * bus, group.channels * RING_LL128_OF_CHANNEL[group.generation] * 1e9)
    steps, between = _steps(kind, group.ranks), _steps(kind, group.nodes)
    inside = max(group.hop(Algorithm.RING, protocol), group.posting[_PLACES[protocol]])
    hops = (steps - between) * inside + between * group.network_hop(Algorithm.RING, protocol)
    latency, bandwidth = _base(Algorithm.RING, protocol) + hops, bus * group.ranks / steps
    pieces = [Piece(0.0, latency, bandwidth)]
    if kind is StepKind.ALL_REDUCE and protocol is Protocol.SIMPLE and group.nodes > 1:
        start = PLATEAU_BYTES * group.channels * group.ranks
        pieces.append(Piece(start, PLATEAU[group.generation] * latency, bandwidth))
    return Tuned(Algorithm.RING, protocol, tuple(pieces))


def _tree(group: Communicator, protocol: Protocol) -> Tuned:
    bus = min(TREE_SHARE * group.bandwidth, _of_channels(TREE_OF_CHANNEL[group.generation], group))
    if protocol is Protocol.LL:
        bus = min(LL_TREE * bus, group.ll_limit)
    elif protocol is Protocol.LL128:
        share = LL128_TREE_IN_NODE if group.nodes == 1 else LL128_TREE
        bus = min(share * bus, _of_channels(TREE_LL128_OF_CHANNEL[group.generation], group))
    inside = (group.ranks // group.nodes - 1) * group.hop(Algorithm.TREE, protocol)
    hops = inside + _log2(group.nodes) * group.network_hop(Algorithm.TREE, protocol)
    latency, bandwidth = _base(Algorithm.TREE, protocol) + 2 * hops, bus / 2
    factors = ((0.0, 1.0), *((TREE_FROM * 2.0**i, f) for i, f in enumerate((*TREE_FACTORS[protocol], 1.0))))
    pieces = [Piece(start, latency, bandwidth * factor) for start, factor in factors]
    return Tuned(Algorithm.TREE, protocol, tuple(pieces))


def _in_switch(kind: StepKind, group: Communicator) -> float:
    """The bus bandwidth of NVLS in a node. An all-reduce overlaps a reduction and a broadcast."""
    bus = group.nvls * NVLS_EFFICIENCY[group.generation] * (group.nvls_channels - 1) / group.nvls_channels
    return bus * (2 if kind is StepKind.ALL_REDUCE else (group.per_node - 1) / group.per_node)


def _nvls(kind: StepKind, group: Communicator) -> Tuned:
    bandwidth = _in_switch(kind, group)
    if kind is StepKind.ALL_REDUCE:
        bandwidth *= group.ranks / _steps(kind, group.ranks)
    pieces = (Piece(0.0, group.hop(Algorithm.NVLS, Protocol.SIMPLE), bandwidth),)
    return Tuned(Algorithm.NVLS, Protocol.SIMPLE, pieces)


def _nvls_tree(group: Communicator) -> Tuned:
    """An NVLS tree, limited by the switch of a node, the network cards (twice their rate over two nodes), and the
    channels.
    """
    protocol = Protocol.SIMPLE
    limit = NVLS_TREE_OF_CHANNEL[group.generation][min(group.nodes, 3) - 1] * 1e9 * group.nvls_channels
    cards = group.bandwidth * (2 if group.nodes == 2 else 1)
    bus = min(_in_switch(StepKind.ALL_REDUCE, group), cards, limit)
    hops = 2 * _log2(group.nodes) * group.network_hop(Algorithm.NVLS_TREE, protocol)
    latency = group.hop(Algorithm.NVLS_TREE, protocol) + hops
    bandwidth = bus * group.ranks / _steps(StepKind.ALL_REDUCE, group.ranks)
    return Tuned(Algorithm.NVLS_TREE, protocol, (Piece(0.0, latency, bandwidth),))


def _pat(group: Communicator) -> Tuned:
    protocol = Protocol.SIMPLE
    hops = _log2(group.nodes) * group.network_hop(Algorithm.PAT, protocol) / PAT_HOPS
    latency = _base(Algorithm.PAT, protocol) + hops + group.ranks * PAT_OF_RANK * 1e-6
    return Tuned(Algorithm.PAT, protocol, (Piece(0.0, latency, PAT_SHARE * group.bandwidth),))
