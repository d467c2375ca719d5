"""Prices in seconds of collectives and of the other steps of conversions: alpha-beta rings, and passes over memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..graph.collective_steps import Step, StepKind
from ..graph.layout import Layout, Mesh, Overlap, Shard, Window
from ..graph.layout_codes import Fractions
from ..graph.single_steps import received_fraction
from .machine import Machine
from .mesh import prime_factors


@dataclass(frozen=True)
class LinkTime:
    """Seconds that a collective takes of the links of one level, or what it takes of them per byte."""

    level: int
    seconds: float


@dataclass(frozen=True)
class Transfer:
    """A collective of so many bytes: its hops take `latency`, the bytes that a device sends the time of its links.

    `seconds` is its price: the latency and the busiest level's time, and what its copies take of the memory.
    """

    seconds: float
    latency: float
    links: tuple[LinkTime, ...]
    sent: float


@dataclass(frozen=True)
class Price:
    """Seconds of something done to n bytes: `latency + per_byte * n`.

    For each of these bytes a device sends `sent` bytes, and the links of each level that they cross are busy for the
    time in `links`; the busiest level's is part of `per_byte`.
    """

    latency: float = 0.0
    per_byte: float = 0.0
    links: tuple[LinkTime, ...] = ()
    sent: float = 0.0

    def __add__(self, other: Price) -> Price:
        levels = sorted({link.level for link in (*self.links, *other.links)})
        links = tuple(LinkTime(level, self._of_level(level) + other._of_level(level)) for level in levels)
        return Price(self.latency + other.latency, self.per_byte + other.per_byte, links, self.sent + other.sent)

    def scaled(self, factor: float) -> Price:
        """The price in terms of a tensor of which each counted byte is `factor` bytes."""
        links = tuple(LinkTime(link.level, link.seconds * factor) for link in self.links)
        return Price(self.latency, self.per_byte * factor, links, self.sent * factor)

    def seconds(self, count: float) -> float:
        return self.latency + self.per_byte * count

    def transfer(self, count: float) -> Transfer:
        """What is done to `count` bytes, by level of the interconnect."""
        scaled = self.scaled(count)
        return Transfer(self.seconds(count), self.latency, scaled.links, scaled.sent)

    def _of_level(self, level: int) -> float:
        return sum(link.seconds for link in self.links if link.level == level)


@lru_cache(maxsize=4096)
def group_price(axes: tuple[int, ...], mesh: Mesh, machine: Machine) -> Price:
    """One pass through a group: its hops, and the bytes that one member sends.

    A group of p members takes the sum over the prime factors q of p of q - 1 hops, on the level that each factor
    crosses: p - 1 for a ring over one prime axis, log2(p) for p = 2^k, by recursive doubling, which moves as much.
    (With a ring over the joint group, gathering axis after axis would be cheaper than all at once.) The bandwidth is
    that of the slowest link crossed; groups that run at the same time share it.
    """
    levels = sorted({mesh.axes[axis].level for axis in axes})
    hops = sum(_hops(mesh.axes[axis].degree) * machine.levels[mesh.axes[axis].level].latency for axis in axes)
    links = tuple(LinkTime(i, _sharers(i, axes, mesh, machine) / machine.levels[i].bandwidth) for i in levels)
    return Price(hops, max(link.seconds for link in links), links, 1.0)


@lru_cache(maxsize=4096)
def direct_price(axes: tuple[int, ...], mesh: Mesh, machine: Machine) -> Price:
    """Hops, and the bytes that one member receives from any others at once: all-to-all, permutations, exchanges.

    Unlike in a ring, where one device of a unit (an island, a node) sends for all of the unit, every device of it uses
    the link: all of the mesh that are in the unit share it, whichever groups they are in.
    """
    levels = sorted({mesh.axes[axis].level for axis in axes})
    links = tuple(LinkTime(i, _sharers(i, (), mesh, machine) / machine.levels[i].bandwidth) for i in levels)
    return Price(group_price(axes, mesh, machine).latency, max(link.seconds for link in links), links, 1.0)


def _hops(degree: int) -> int:
    return sum(factor - 1 for factor in prime_factors(degree))


def _sharers(level: int, axes: Sequence[int], mesh: Mesh, machine: Machine) -> int:
    """Groups along `axes` that meet in one unit (a device, an island, a node) and so share its link of a level."""
    sharers, stride = 1, 1
    for axis in reversed(range(len(mesh.axes))):
        degree = mesh.axes[axis].degree
        if axis not in axes:
            sharers *= _inside(mesh.axes[axis].level, degree, stride, level, machine)
        stride *= degree
    return sharers


def _inside(axis_level: int, degree: int, stride: int, level: int, machine: Machine) -> int:
    """How many positions of a mesh axis lie within one unit below a level. Some do for an axis that straddles it."""
    if axis_level < level:
        return degree
    below = machine.devices_below(level)
    room = below // stride if below % stride == 0 else 1
    return room if degree % room == 0 and room else 1


def price_steps(steps: Iterable[Step], mesh: Mesh, machine: Machine, held: float) -> Price:
    """The price of a conversion's steps in bytes of the whole tensor, of which a device holds the fraction `held`.

    Rings: all-gather and reduce-scatter move (p-1)/p of the full extent in p-1 hops, all-reduce does both, all-to-all
    moves (p-1)/p of the local tensor, an exchange what the devices receive.
    """
    total = Price()
    for step in steps:
        price, held = price_step(step, mesh, machine, held)
        total += price
    return total


def price_step(step: Step, mesh: Mesh, machine: Machine, held: float) -> tuple[Price, float]:
    """The price of one step, and the fraction of the tensor that a device holds after it."""
    price, after = _price_by_links(step, mesh, machine, held)
    measured = machine.collectives.line(step.kind, mesh.degree(step.axes))
    if measured is None:
        return price, after
    latency, per_byte = measured[0], measured[1] * held
    links = price.scaled(per_byte / price.per_byte).links
    return replace(price, latency=latency, per_byte=per_byte, links=links), after


def _price_by_links(step: Step, mesh: Mesh, machine: Machine, held: float) -> tuple[Price, float]:
    degree = mesh.degree(step.axes)
    moved = (degree - 1) / degree
    match step.kind:
        case StepKind.SLICE:
            return local_price(machine, 2 / degree).scaled(held), held / degree
        case StepKind.MASK:
            return local_price(machine, 2).scaled(held), held
        case StepKind.PAD:
            return local_price(machine, 1 + degree).scaled(held), held * degree
        case StepKind.ALL_GATHER:
            return group_price(step.axes, mesh, machine).scaled(moved * degree * held), held * degree
        case StepKind.REDUCE_SCATTER:
            return group_price(step.axes, mesh, machine).scaled(moved * held), held / degree
        case StepKind.ALL_REDUCE:
            once = group_price(step.axes, mesh, machine).scaled(moved * held)
            return once + once, held
        case StepKind.ALL_TO_ALL:
            return direct_price(step.axes, mesh, machine).scaled(moved * held), held
        case StepKind.PERMUTE:
            assert step.source is not None and step.target is not None
            return price_permutation(step.axes, exchanged(step.source, step.target, mesh), mesh, machine), held
        case StepKind.EXCHANGE:
            assert step.source is not None and step.target is not None
            received, kept = exchanged(step.source, step.target, mesh), local_fraction(step.target, mesh)
            return price_exchange(step.axes, received, mesh, machine, held, kept), kept
    raise AssertionError(f"unknown step {step.kind}")


def price_exchange(
    axes: tuple[int, ...], received: float, mesh: Mesh, machine: Machine, before: float, after: float
) -> Price:
    """Slices packed, sent and put in place: a device receives one part of the tensor, and copies what it has before
    and after. Where nothing is sent, what it keeps is copied once.
    """
    amounts = (np.array([amount]) for amount in (received, before, after))
    latency, per_byte = price_exchanges(axes, mesh, machine, *amounts)[:, 0].tolist()
    moved = direct_price(axes, mesh, machine).scaled(received)
    return Price(latency, per_byte, moved.links, moved.sent)


def price_exchanges(
    axes: tuple[int, ...], mesh: Mesh, machine: Machine, received: Fractions, before: Fractions, after: Fractions
) -> Fractions:
    """Latency and price per byte of exchanges over one group of mesh axes. Shape [2, exchanges]."""
    direct, local = direct_price(axes, mesh, machine), local_price(machine, 2)
    sent = received != 0
    latency = np.where(sent, direct.latency, 0.0) + local.latency
    copied = np.where(sent, before + after, after)
    return np.stack([latency, direct.per_byte * received + local.per_byte * copied])


def price_permutation(axes: tuple[int, ...], received: float, mesh: Mesh, machine: Machine) -> Price:
    """Every device sends what it holds to one other: a single hop, on the slowest link that the group crosses."""
    hop = max(machine.levels[mesh.axes[axis].level].latency for axis in axes)
    return replace(direct_price(axes, mesh, machine).scaled(received), latency=hop)


@lru_cache(maxsize=65536)
def exchanged(source: Layout, target: Layout, mesh: Mesh) -> float:
    """The part of a tensor that a device receives from others in an exchange between partition shards."""
    dims = sorted({kind.dim for kind in (*source.kinds, *target.kinds) if isinstance(kind, Shard)})
    return received_fraction(source, target, mesh, tuple(dims))


def local_fraction(layout: Layout, mesh: Mesh) -> float:
    """The part of a tensor's elements that each device holds, without what windows hold of their neighbours."""
    return 1 / mesh.degree(layout.where(Shard, Window, Overlap))


def local_price(machine: Machine, passes: float) -> Price:
    """A kernel that goes over the local bytes `passes` times."""
    return Price(machine.launch_seconds, passes / (machine.memory_bandwidth * machine.memory_efficiency))
