"""Prices of collectives from the levels of the interconnect alone: by rings, trees and direct sends.

A hop takes the latency of its level, and every collective the launch of its kernel; the fastest algorithm for the bytes
counts. In a group of p devices, a level joins u units of m devices, each of which sends r bytes a second (`Crossing`).

| collective                 | algorithm | hops on a level        | seconds per byte of a level       |
|----------------------------|-----------|------------------------|-----------------------------------|
| reduce-scatter, all-gather | ring      | units less those above | (p-1)/p / (m r), levels at once   |
| all-reduce                 | ring      | twice those            | 2 (p-1)/p / (m r), levels at once |
|                            | tree      | 2 log2 u               | 2 / (m r), levels at once         |
| all-to-all                 | direct    | peers                  | peers/p / r                       |

In a ring and a tree all levels are busy at once, so the slowest counts; times of direct sends add up. Bytes are those
of the whole tensor for reduce-scatter and all-gather, and those that one device holds for the others. log2 u is
rounded up.

Sources: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH (2005), sections 3
and 4: ring, pairwise all-to-all. Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and
scan (2009): tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..graph.collective_steps import StepKind
from .device_group import Crossing
from .machine import Machine
from .price import AlgorithmPrice, LinkTime, Price, cheapest


def collective_price(kind: StepKind, levels: tuple[Crossing, ...], size: int, machine: Machine) -> Price:
    """The price of an all-gather, a reduce-scatter or an all-reduce in a group of `size` that crosses these levels."""
    if kind is StepKind.ALL_REDUCE:
        return cheapest((_ring(levels, size, 2, machine), _tree(levels, machine)))
    return Price((_ring(levels, size, 1, machine),))


def sends_price(
    levels: tuple[Crossing, ...], peers: Sequence[int], parts: Sequence[float], size: int, machine: Machine
) -> Price:
    """The price of messages to `peers` at each level, one after the other. `parts` is the fraction of the counted bytes
    sent at each level.
    """
    times = [part / level.rate for part, level in zip(parts, levels, strict=True)]
    return Price((_algorithm("direct", levels, peers, times, sum(parts), machine, sum),))


def message_seconds(farthest: Crossing, levels: tuple[Crossing, ...], size: int, machine: Machine) -> float:
    """Seconds that one more small message takes over a level: a hop."""
    return farthest.latency


def _ring(levels: Sequence[Crossing], size: int, passes: int, machine: Machine) -> AlgorithmPrice:
    above = [*(level.all_units for level in levels[1:]), 1]
    hops = [passes * (level.all_units - units) for level, units in zip(levels, above, strict=True)]
    sent = passes * (size - 1) / size
    return _algorithm("ring", levels, hops, [sent / level.unit_rate for level in levels], sent, machine)


def _tree(levels: Sequence[Crossing], machine: Machine) -> AlgorithmPrice:
    hops = [2 * _rounds(level.units) for level in levels]
    return _algorithm("tree", levels, hops, [2 / level.unit_rate for level in levels], 2.0, machine)


def _algorithm(
    name: str,
    levels: Sequence[Crossing],
    hops: Iterable[int],
    times: Sequence[float],
    sent: float,
    machine: Machine,
    together: Callable[[Iterable[float]], float] = max,
) -> AlgorithmPrice:
    """The cost of an algorithm with these `hops` and link `times` per level; `together` combines the levels' times."""
    latency = machine.exposed_launch + sum(n * level.latency for n, level in zip(hops, levels, strict=True))
    links = tuple(LinkTime(level.level, time) for level, time in zip(levels, times, strict=True) if time)
    return AlgorithmPrice(name, latency, together(times), links, sent)


def _rounds(units: int) -> int:
    """log2, rounded up."""
    return (units - 1).bit_length()
