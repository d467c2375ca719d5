"""Prices of collectives over a group of mesh axes: as NCCL runs them, or by rings, trees and direct sends.

A machine that names NCCL is priced by its own estimates (`nccl_price`). Of others only the levels are known. There a
hop takes the latency of its level, and every collective the launch of its kernel; the fastest algorithm for the bytes
counts. Of a group of p devices, a level joins u units of m devices, each of which sends r bytes a second (`Crossing`).

| collective                 | algorithm | hops on a level        | seconds per byte of a level       |
|----------------------------|-----------|------------------------|-----------------------------------|
| reduce-scatter, all-gather | ring      | units less those above | (p-1)/p / (m r), levels at once   |
| all-reduce                 | ring      | twice those            | 2 (p-1)/p / (m r), levels at once |
|                            | tree      | 2 log2 u               | 2 / (m r), levels at once         |
| all-to-all                 | direct    | peers                  | peers/p / r                       |

In a ring and a tree all levels are busy at once, so that the slowest counts; times of direct sends add up. Bytes are
those of the whole tensor for reduce-scatter and all-gather, of what one device holds for the others. log2 u is rounded
up.

Sources: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH (2005), sections 3
and 4: ring, pairwise all-to-all. Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and
scan (2009): tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from ..graph.collective_steps import StepKind
from ..graph.layout import Mesh
from .device_group import Crossing, crossings
from .machine import Machine
from .nccl_price import collective_price, message_seconds, sends_price
from .price import AlgorithmPrice, LinkTime, Price, cheapest

Group = tuple[int, ...]
"""Mesh axes along which devices form groups."""


@lru_cache(maxsize=4096)
def gathering_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """Of an all-gather or a reduce-scatter, in bytes of the whole tensor."""
    levels, size = crossings(axes, mesh, machine), mesh.degree(axes)
    if machine.collectives.nccl is not None:
        return collective_price(StepKind.ALL_GATHER, levels, size, machine)
    return Price((_ring(levels, size, 1, machine),))


@lru_cache(maxsize=4096)
def all_reduce_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """In bytes of the tensor that is summed."""
    levels, size = crossings(axes, mesh, machine), mesh.degree(axes)
    if machine.collectives.nccl is not None:
        return collective_price(StepKind.ALL_REDUCE, levels, size, machine)
    return cheapest((_ring(levels, size, 2, machine), _tree(levels, machine)))


@lru_cache(maxsize=4096)
def all_to_all_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """In bytes of what one device holds."""
    levels, size = crossings(axes, mesh, machine), mesh.degree(axes)
    peers = [level.peers for level in levels]
    return _direct(levels, peers, [count / size for count in peers], size, machine)


@lru_cache(maxsize=4096)
def permutation_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """Every device sends to one other, in bytes that it receives: a single hop, and bytes on the slowest level."""
    levels = crossings(axes, mesh, machine)
    farthest, slowest = _farthest(levels), min(levels, key=lambda level: level.rate)
    peers = [int(level is farthest) for level in levels]
    return _direct(levels, peers, [float(level is slowest) for level in levels], mesh.degree(axes), machine)


@lru_cache(maxsize=4096)
def partner_seconds(axes: Group, mesh: Mesh, machine: Machine) -> float:
    """What each partner besides the first adds to transfers between devices of a group."""
    levels = crossings(axes, mesh, machine)
    if machine.collectives.nccl is not None:
        return message_seconds(_farthest(levels), levels, mesh.degree(axes), machine)
    return _farthest(levels).latency


def _farthest(levels: Sequence[Crossing]) -> Crossing:
    return max(levels, key=lambda level: level.latency)


def _direct(
    levels: tuple[Crossing, ...], peers: Sequence[int], parts: Sequence[float], size: int, machine: Machine
) -> Price:
    """Messages to so many peers on each level, of so large parts of the bytes, one after the other."""
    if machine.collectives.nccl is not None:
        return sends_price(levels, peers, parts, size, machine)
    times = [part / level.rate for part, level in zip(parts, levels, strict=True)]
    return Price((_algorithm("direct", levels, peers, times, sum(parts), machine, sum),))


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
    """`hops` and `times`, of links, are per level; `together` is the time of all levels."""
    latency = machine.exposed_launch + sum(n * level.latency for n, level in zip(hops, levels, strict=True))
    links = tuple(LinkTime(level.level, time) for level, time in zip(levels, times, strict=True) if time)
    return AlgorithmPrice(name, latency, together(times), links, sent)


def _rounds(units: int) -> int:
    """log2, rounded up."""
    return (units - 1).bit_length()
