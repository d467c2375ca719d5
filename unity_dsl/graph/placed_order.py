"""Operators of a plan that the devices of one coordinate compute alone: the order in which they run, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, product

from .layout import Mesh, Placement
from .plan import PlannedGraph, PlannedNode


def different_places(graph: PlannedGraph, mesh: Mesh) -> list[dict[int, int]]:
    """Coordinates, by mesh axis, of a device of each sort that does something else than others do; where all devices do
    the same, one without coordinates.
    """
    axes = sorted({axis for node in graph.nodes() for axis, _ in node.placement})
    found = product(*(range(mesh.axes[axis].degree) for axis in axes))
    return [dict(zip(axes, coordinates, strict=True)) for coordinates in found]


def in_stretches(steps: Sequence[PlannedNode]) -> Iterator[tuple[Placement, list[PlannedNode]]]:
    """The steps in an order in which each comes after what it reads, those on the same devices one behind the other
    where that is possible: by placement. Where none is placed, the order stays as it is.
    """
    if not any(step.placement for step in steps):
        return iter([((), list(steps))] if steps else [])
    return ((where, list(same)) for where, same in groupby(_ordered(steps), lambda step: step.placement))


def _ordered(steps: Sequence[PlannedNode]) -> Iterator[PlannedNode]:
    """Always the first step of which all that it reads is there and that runs where the one before did, if there is
    one: Kahn's topological order.
    """
    left, makes = list(steps), {value.name for step in steps for value in step.node.results}
    where: Placement = ()
    while left:
        ready = [step for step in left if not any(value.name in makes for value in step.node.arguments)]
        chosen = next((step for step in ready if step.placement == where), ready[0])
        yield chosen
        where = chosen.placement
        left.remove(chosen)
        makes.difference_update(value.name for value in chosen.node.results)
