"""Prices in seconds of the steps of conversions: collectives, exchanges, and passes over memory."""

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
    """The price of a conversion's steps in bytes of the whole tensor, of which a device holds the fraction `held`."""
    total = Price()
    for step in steps:
        price, held = price_step(step, mesh, machine, held)
        total += price
    return total


@lru_cache(maxsize=65536)
def price_step(step: Step, mesh: Mesh, machine: Machine, held: float) -> tuple[Price, float]:
    """The price of one step, and the fraction of the tensor that a device holds after it.

    A measured time wins; of the levels, it keeps those busy that the algorithm for many bytes does.
    """
    if step.first:
        return _price_in_two_steps(step, mesh, machine, held)
    price, after = _price_by_links(step, mesh, machine, held)
    return _as_measured(price, step.kind, mesh.degree(step.axes), machine, held), after


def _price_in_two_steps(step: Step, mesh: Mesh, machine: Machine, held: float) -> tuple[Price, float]:
    """Of both steps, and of the copies that put blocks in order: behind a gather, before a reduce-scatter, and before
    each step of an all-to-all.
    """
    before, after = parts(step)
    sent, between = price_step(before, mesh, machine, held)
    further, kept = price_step(after, mesh, machine, between)
    copied = local_price(machine, 2).scaled(max(held, kept))
    return sent + further + (copied + copied if step.kind is StepKind.ALL_TO_ALL else copied), kept


def fastest_price(step: Step, mesh: Mesh, machine: Machine) -> Price:
    """The price of one step of a tensor that a device holds whole, by the fastest of its ways for each size."""
    return least([price_step(way, mesh, machine, 1.0)[0] for way in ways(step, mesh, machine)])


def fastest_way(step: Step, mesh: Mesh, machine: Machine, count: float) -> Step:
    """How to do a step of a tensor of which a device holds so many bytes."""
    found = list(ways(step, mesh, machine))
    if len(found) == 1:
        return step
    return min(found, key=lambda way: price_step(way, mesh, machine, 1.0)[0].seconds(count))


def price_block(step: Step, mesh: Mesh, machine: Machine) -> Price:
    """In bytes of a block: every member of the group of an all-gather sends its own to another one, and receives one.
    The measured time of permutations wins.
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
    """The copies around a collective, of which a device has the fraction `before` of a tensor, then `after`: blocks are
    packed before they are sent, and put in place where they do not lie one behind the other.
    """
    packed = local_price(machine, 2 * before) if packs(step) else Price()
    return packed + local_price(machine, 2 * after) if joins(step) else packed


def price_bucket(machine: Machine, before: float) -> Price:
    """The copy of a gradient, of which a device has the fraction `before`, into a bucket, which keeps the sum."""
    return local_price(machine, 2 * before)


def packs(step: Step) -> bool:
    """Whether what is sent are blocks of a copy: those of the first dimension lie one behind the other."""
    scatters = step.kind is StepKind.REDUCE_SCATTER and step.dim != 0
    return scatters or (step.kind is StepKind.ALL_TO_ALL and step.to_dim != 0)


def joins(step: Step) -> bool:
    """Whether what members send is copied to where it belongs: blocks of the first dimension lie there already."""
    return step.kind in (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL) and step.dim != 0


def price_exchange(
    axes: tuple[int, ...], received: float, mesh: Mesh, machine: Machine, before: float, after: float
) -> Price:
    """Slices packed, sent and put in place: a device receives one part of the tensor, and copies what it has before
    and after. Where nothing is sent, what it keeps is copied once.
    """
    partner = partner_seconds(axes, mesh, machine) if received else 0.0
    parts_of_tensor = (np.array(part) for part in (received, before, after, partner))
    latency, per_byte = exchange_copies(machine, *parts_of_tensor).tolist()
    copied = Price((AlgorithmPrice("copy", latency, per_byte),))
    return permutation_price(axes, mesh, machine).scaled(received) + copied if received else copied


def exchange_copies(
    machine: Machine, received: Fractions, before: Fractions, after: Fractions, partner: Fractions
) -> Fractions:
    """Latency and price per byte of the copies of exchanges, and the latency of further partners, each of so many
    seconds: no other device has more of what one takes than one holds. Shape [2, exchanges].
    """
    (copying,) = local_price(machine, 2).algorithms
    copied = np.where(received != 0, before + after, after)
    further = np.maximum(np.ceil(received / before - 1e-9) - 1, 0.0)
    return np.stack([copying.latency + further * partner, copying.per_byte * copied])


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
    return Price((AlgorithmPrice("copy", machine.exposed_launch, machine.traffic_seconds(passes)),))
