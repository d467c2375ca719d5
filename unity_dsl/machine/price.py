"""What work and communication cost: a roofline for operators, alpha-beta rings for collectives. Times are seconds.

Small on purpose: the search asks for these prices only, so a calibrated model can take their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..graph.conversion import Step, StepKind
from ..graph.exchange import received_fraction
from ..graph.layout import Layout, Mesh, Shard
from ..graph.typing import InnerReduce, TypedOperator
from ..index.instance import Instance
from ..index.work import Work, backward_work, work
from .machine import Machine

DTYPE_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "int": 8}


@dataclass(frozen=True)
class Price:
    """Seconds of something done to n bytes: `latency + per_byte * n`."""

    latency: float = 0.0
    per_byte: float = 0.0

    def __add__(self, other: Price) -> Price:
        return Price(self.latency + other.latency, self.per_byte + other.per_byte)

    def scaled(self, factor: float) -> Price:
        """The price in terms of a tensor of which each counted byte is `factor` bytes."""
        return Price(self.latency, self.per_byte * factor)

    def seconds(self, count: float) -> float:
        return self.latency + self.per_byte * count


# ----------------------------------------------------------------------------------------------- communication


def group_price(axes: Sequence[int], mesh: Mesh, machine: Machine) -> Price:
    """One pass of a ring through a group: a hop per member and level, and the bytes that one member sends.

    A ring over several levels is hierarchical: its hops are those of each level, its bandwidth that of the slowest link
    it crosses. Groups that run at the same time share the link of a level.
    """
    members: dict[int, int] = {}
    for axis in axes:
        level = mesh.axes[axis].level
        members[level] = members.get(level, 1) * mesh.axes[axis].degree
    hops = sum((count - 1) * machine.levels[level].latency for level, count in members.items())
    bandwidth = min(machine.levels[level].bandwidth / _sharers(level, axes, mesh, machine) for level in members)
    return Price(hops, 1 / bandwidth)


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
        price, held = _price_step(step, mesh, machine, held)
        total += price
    return total


def _price_step(step: Step, mesh: Mesh, machine: Machine, held: float) -> tuple[Price, float]:
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
            return group_price(step.axes, mesh, machine).scaled(moved * held), held
        case StepKind.EXCHANGE:
            assert step.source is not None and step.target is not None
            sent = group_price(step.axes, mesh, machine).scaled(received_fraction(step.source, step.target, mesh))
            after = held_fraction(step.target, mesh)
            return sent + local_price(machine, 2).scaled(held + after), after
    raise AssertionError(f"unknown step {step.kind}")


def held_fraction(layout: Layout, mesh: Mesh) -> float:
    """The part of a tensor's elements that each device holds."""
    return 1 / mesh.degree(layout.where(Shard))


def local_price(machine: Machine, passes: float) -> Price:
    """A kernel that goes over the local bytes `passes` times."""
    return Price(machine.launch_seconds, passes / (machine.memory_bandwidth * machine.memory_efficiency))


# ---------------------------------------------------------------------------------------------------- work


def price_work(done: Work, dtype: str, machine: Machine) -> float:
    """Roofline: the larger of arithmetic and memory traffic, and a launch."""
    arithmetic = done.flops / (machine.peak[dtype] * machine.compute_efficiency)
    traffic = (done.bytes_read + done.bytes_written) / (machine.memory_bandwidth * machine.memory_efficiency)
    return machine.launch_seconds + max(arithmetic, traffic)
