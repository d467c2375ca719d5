"""Prices in seconds of conversion steps: collectives, exchanges, and passes over memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from ..graph.collective_steps import Step, StepKind
from ..graph.layout import Layout, Mesh, Overlap, Shard, Window
from ..graph.layout_codes import Fractions
from ..graph.single_steps import received_fraction
from .group_price import (
    all_reduce_price,
    all_to_all_price,
    gathering_price,
    partner_seconds,
    permutation_price,
)
from .machine import Machine
from .price import AlgorithmPrice, Price, least
from .two_step_collectives import parts, ways


def price_steps(steps: Iterable[Step], mesh: Mesh, machine: Machine, held: float) -> Price:
    """The total price of a conversion's steps, in bytes of the whole tensor; a device first has the fraction `held`."""
    total = Price()
    for step in steps:
        price, held = price_step(step, mesh, machine, held)
        total += price
    return total


@lru_cache(maxsize=65536)
def price_step(step: Step, mesh: Mesh, machine: Machine, held: float) -> tuple[Price, float]:
    """The price of one step, and the fraction of the tensor that a device holds after it.

    A measured time takes precedence; the busy times of links are then those of the algorithm for large sizes.
    """
    if step.first:
        return _price_in_two_steps(step, mesh, machine, held)
    price, after = _price_by_links(step, mesh, machine, held)
    return _as_measured(price, step.kind, mesh.degree(step.axes), machine, held), after


def _price_in_two_steps(step: Step, mesh: Mesh, machine: Machine, held: float) -> tuple[Price, float]:
    """The price of both steps and of the copies that reorder blocks: after a gather, before a reduce-scatter, and
    before each step of an all-to-all.
    """
    before, after = parts(step)
    sent, between = price_step(before, mesh, machine, held)
    further, kept = price_step(after, mesh, machine, between)
    copied = local_price(machine, 2).scaled(max(held, kept))
    return sent + further + (copied + copied if step.kind is StepKind.ALL_TO_ALL else copied), kept


def fastest_price(step: Step, mesh: Mesh, machine: Machine) -> Price:
    """The price of one step of a tensor that a device holds whole, by the fastest implementation for each size."""
    return least([price_step(way, mesh, machine, 1.0)[0] for way in ways(step, mesh, machine)])


def fastest_way(step: Step, mesh: Mesh, machine: Machine, count: float) -> Step:
    """The fastest implementation of a step for a tensor of which a device holds `count` bytes."""
    found = list(ways(step, mesh, machine))
    if len(found) == 1:
        return step
    return min(found, key=lambda way: price_step(way, mesh, machine, 1.0)[0].seconds(count))


def price_block(step: Step, mesh: Mesh, machine: Machine) -> Price:
    """The price, in bytes of a block, of one round of an all-gather: every member of the group sends its block to
    another member and receives one. A measured time of permutations takes precedence.
    """
    price = permutation_price(step.axes, mesh, machine)
    return _as_measured(price, StepKind.PERMUTE, mesh.degree(step.axes), machine, 1.0)


def _as_measured(price: Price, kind: StepKind, degree: int, machine: Machine, held: float) -> Price:
    measured = machine.collectives.measured.line(kind, degree)
    if measured is None:
        return price
    latency, per_byte = measured[0], measured[1] * held
    rate = price.algorithms[-1]
    links = rate.scaled(per_byte / rate.per_byte).links
    return Price((AlgorithmPrice("measured", latency, per_byte, links, rate.sent),))


def _price_by_links(step: Step, mesh: Mesh, machine: Machine, held: float) -> tuple[Price, float]:
    degree = mesh.degree(step.axes)
    match step.kind:
        case StepKind.SLICE:
            return Price(), held / degree  # a view
        case StepKind.MASK:
            return local_price(machine, 1).scaled(held), held  # zeros, but on the first device
        case StepKind.PAD:
            return local_price(machine, 1 + degree).scaled(held), held * degree
        case StepKind.ALL_GATHER:
            return gathering_price(step.axes, mesh, machine).scaled(held * degree), held * degree
        case StepKind.REDUCE_SCATTER:
            return gathering_price(step.axes, mesh, machine).scaled(held), held / degree
        case StepKind.ALL_REDUCE:
            return all_reduce_price(step.axes, mesh, machine).scaled(held), held
        case StepKind.ALL_TO_ALL:
            return all_to_all_price(step.axes, mesh, machine).scaled(held), held
        case StepKind.PERMUTE:
            assert step.source is not None and step.target is not None
            received = exchanged(step.source, step.target, mesh)
            return permutation_price(step.axes, mesh, machine).scaled(received), held
        case StepKind.EXCHANGE:
            assert step.source is not None and step.target is not None
            received, kept = exchanged(step.source, step.target, mesh), local_fraction(step.target, mesh)
            return price_exchange(step.axes, received, mesh, machine, held, kept), kept
    raise AssertionError(f"unknown step {step.kind}")


def price_copies(step: Step, machine: Machine, before: float, after: float) -> Price:
    """The copies around a collective. A device has the fraction `before` of a tensor, then `after`. Blocks are packed
    before sending, and received blocks that are not contiguous are copied to their places.
    """
    packed = local_price(machine, 2 * before) if packs(step) else Price()
    return packed + local_price(machine, 2 * after) if joins(step) else packed


def price_bucket(machine: Machine, before: float) -> Price:
    """The copy of a gradient into a bucket, where its sum stays; a device has the fraction `before` of it."""
    return local_price(machine, 2 * before)


def packs(step: Step) -> bool:
    """Whether blocks are copied before sending: those of the first dimension are contiguous already."""
    scatters = step.kind is StepKind.REDUCE_SCATTER and step.dim != 0
    return scatters or (step.kind is StepKind.ALL_TO_ALL and step.to_dim != 0)


def joins(step: Step) -> bool:
    """Whether received blocks are copied to their places: those of the first dimension are there already."""
    return step.kind in (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL) and step.dim != 0


def price_exchange(
    axes: tuple[int, ...], received: float, mesh: Mesh, machine: Machine, before: float, after: float
) -> Price:
    """The price of an exchange: slices are packed, sent and put in place. A device receives one part of the tensor, and
    copies what it has before and after. If nothing is sent, the part that it keeps is copied once.
    """
    partner = partner_seconds(axes, mesh, machine) if received else 0.0
    parts_of_tensor = (np.array(part) for part in (received, before, after, partner))
    latency, per_byte = exchange_copies(machine, *parts_of_tensor).tolist()
    copied = Price((AlgorithmPrice("copy", latency, per_byte),))
    return permutation_price(axes, mesh, machine).scaled(received) + copied if received else copied


def exchange_copies(
    machine: Machine, received: Fractions, before: Fractions, after: Fractions, partner: Fractions
) -> Fractions:
    """Latency and price per byte of the copies of exchanges, plus `partner` seconds for each further partner. The
    number of partners assumes that no device holds more of the received part than it has `before`. Shape [2,
    exchanges].
    """
    (copying,) = local_price(machine, 2).algorithms
    copied = np.where(received != 0, before + after, after)
    further = np.maximum(np.ceil(received / before - 1e-9) - 1, 0.0)
    return np.stack([copying.latency + further * partner, copying.per_byte * copied])


@lru_cache(maxsize=65536)
def exchanged(source: Layout, target: Layout, mesh: Mesh) -> float:
    """The fraction of a tensor that a device receives from others in an exchange between partition shards."""
    dims = sorted({kind.dim for kind in (*source.kinds, *target.kinds) if isinstance(kind, Shard)})
    return received_fraction(source, target, mesh, tuple(dims))


def local_fraction(layout: Layout, mesh: Mesh) -> float:
    """The fraction of a tensor's elements that each device holds, without the neighbours' elements in windows."""
    return 1 / mesh.degree(layout.where(Shard, Window, Overlap))


def local_price(machine: Machine, passes: float) -> Price:
    """The price of a kernel that makes `passes` passes over the local bytes."""
    return Price((AlgorithmPrice("copy", machine.exposed_launch, machine.traffic_seconds(passes)),))
