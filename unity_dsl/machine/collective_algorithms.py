"""Algorithms of collectives: their hops, and the time that bytes take of the links, level by level of the machine.

The price of a collective is that of the algorithm which is the fastest for its bytes. A hop takes the latency of its
level, and every collective the launch of its kernel. Of a group of p devices, a level joins u units of m devices, each
of which sends r bytes a second (`Crossing`). Algorithms that go from level to level add their times up; in a ring and a
tree all levels are busy at once, so that the slowest counts.

| collective                 | algorithm            | hops on a level        | seconds per byte of a level       |
|----------------------------|----------------------|------------------------|-----------------------------------|
| reduce-scatter, all-gather | ring                 | units less those above | (p-1)/p / (m r), levels at once   |
|                            | doubling             | log2 u                 | (u-1)/u / (m r)                   |
| all-reduce                 | ring                 | twice those            | 2 (p-1)/p / (m r), levels at once |
|                            | halving and doubling | 2 log2 u               | 2 (u-1)/u / (m r)                 |
|                            | tree                 | 2 log2 u               | 2 / (m r), levels at once         |
|                            | doubling             | log2 u                 | log2 u / r                        |
| all-to-all                 | direct               | peers                  | peers/p / r                       |
|                            | by levels            | u - 1                  | (u-1)/u / r                       |
|                            | Bruck                | log2 u                 | (log2 u)/2 / r                    |

Bytes are those of the whole tensor for reduce-scatter and all-gather, of what one device holds for the others. Where u
is no power of two, log2 u is rounded up (Bruck's all-gather and its reverse), two hops more for the last doubling.

Sources: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH (2005), sections 3
and 4: ring, doubling, halving, Bruck, pairwise all-to-all. Sanders, Speck, Träff, Two-tree algorithms for full
bandwidth broadcast, reduction and scan (2009): tree. Träff, Optimal, non-pipelined reduce-scatter and allreduce
algorithms (2024): any u. From level to level: a reduce-scatter within units comes before the one across them, an
all-gather after it, so that slow links carry an m-th of the bytes; in an all-to-all, blocks for another unit are
collected within one first, as NCCL does (PXN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from ..graph.layout import Mesh
from .device_group import Crossing, crossings
from .machine import Machine
from .price import AlgorithmPrice, LinkTime, Price, cheapest

Group = tuple[int, ...]
"""Mesh axes along which devices form groups."""


@lru_cache(maxsize=4096)
def gathering_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """Of an all-gather or a reduce-scatter, in bytes of the whole tensor."""
    levels, size = crossings(axes, mesh, machine), mesh.degree(axes)
    return cheapest((_ring(levels, size, 1, machine), _by_levels("doubling", levels, 1, machine)))


@lru_cache(maxsize=4096)
def all_reduce_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """In bytes of the tensor that is summed."""
    levels, size = crossings(axes, mesh, machine), mesh.degree(axes)
    rounds = [_exchanges(level.units) for level in levels]
    times = [count / level.rate for count, level in zip(rounds, levels, strict=True)]
    doubling = _algorithm("doubling", levels, rounds, times, sum(rounds), machine)
    halving = _by_levels("halving and doubling", levels, 2, machine)
    return cheapest((_ring(levels, size, 2, machine), halving, _tree(levels, machine), doubling))


@lru_cache(maxsize=4096)
def all_to_all_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """In bytes of what one device holds."""
    levels, size = crossings(axes, mesh, machine), mesh.degree(axes)

    def sending(name: str, hops: Callable[[Crossing], int], part: Callable[[Crossing], float]) -> AlgorithmPrice:
        parts = [part(level) for level in levels]
        times = [sent / level.rate for sent, level in zip(parts, levels, strict=True)]
        return _algorithm(name, levels, map(hops, levels), times, sum(parts), machine)

    direct = sending("direct", lambda level: level.peers, lambda level: level.peers / size)
    staged = sending("by levels", lambda level: level.units - 1, lambda level: (level.units - 1) / level.units)
    bruck = sending("Bruck", lambda level: _rounds(level.units), lambda level: _forwarded(level.units))
    return cheapest((direct, staged, bruck))


@lru_cache(maxsize=4096)
def exchange_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """Of transfers between any devices of a group, in bytes that a device receives. A device has between 1 and p - 1
    partners, and which levels are between them is not looked at: it takes the hops of a doubling, all bytes cross the
    slowest level.
    """
    levels = crossings(axes, mesh, machine)
    return Price((_sent(levels, sum(_rounds(level.units) * level.latency for level in levels), machine),))


@lru_cache(maxsize=4096)
def permutation_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """Every device sends to one other, in bytes that it receives: a single hop on the slowest level."""
    levels = crossings(axes, mesh, machine)
    return Price((_sent(levels, max(level.latency for level in levels), machine),))


def _sent(levels: Sequence[Crossing], hops: float, machine: Machine) -> AlgorithmPrice:
    slowest = min(levels, key=lambda level: level.rate)
    link = LinkTime(slowest.level, 1 / slowest.rate)
    return AlgorithmPrice("direct", machine.exposed_launch + hops, link.seconds, (link,), 1.0)


def _ring(levels: Sequence[Crossing], size: int, passes: int, machine: Machine) -> AlgorithmPrice:
    above = [*(level.all_units for level in levels[1:]), 1]
    hops = [passes * (level.all_units - units) for level, units in zip(levels, above, strict=True)]
    sent = passes * (size - 1) / size
    return _algorithm("ring", levels, hops, [sent / level.unit_rate for level in levels], sent, machine, max)


def _by_levels(name: str, levels: Sequence[Crossing], passes: int, machine: Machine) -> AlgorithmPrice:
    parts = [passes * (level.units - 1) / level.units / level.members for level in levels]
    times = [part / level.rate for part, level in zip(parts, levels, strict=True)]
    hops = [passes * _rounds(level.units) for level in levels]
    return _algorithm(name, levels, hops, times, sum(parts), machine)


def _tree(levels: Sequence[Crossing], machine: Machine) -> AlgorithmPrice:
    hops = [2 * _rounds(level.units) for level in levels]
    return _algorithm("tree", levels, hops, [2 / level.unit_rate for level in levels], 2.0, machine, max)


def _algorithm(
    name: str,
    levels: Sequence[Crossing],
    hops: Iterable[int],
    times: Sequence[float],
    sent: float,
    machine: Machine,
    together: Callable[[Iterable[float]], float] = sum,
) -> AlgorithmPrice:
    """`hops` and `times`, of links, are per level; `together` is the time of all levels."""
    latency = machine.exposed_launch + sum(n * level.latency for n, level in zip(hops, levels, strict=True))
    links = tuple(LinkTime(level.level, time) for level, time in zip(levels, times, strict=True))
    return AlgorithmPrice(name, latency, together(times), links, sent)


def _rounds(units: int) -> int:
    """log2, rounded up."""
    return (units - 1).bit_length()


def _exchanges(units: int) -> int:
    """Rounds in which all units learn of all others, whole vectors at a time: two more where some have no partner."""
    return units.bit_length() - 1 + (2 if units & (units - 1) else 0)


@lru_cache
def _forwarded(units: int) -> float:
    """Of what a unit holds for all others: what it sends in Bruck's all-to-all, in which the block for the unit that is
    i places further takes as many hops as i has binary digits that are 1.
    """
    return sum(i.bit_count() for i in range(units)) / units
