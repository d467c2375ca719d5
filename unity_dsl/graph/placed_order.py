"""Operators of a plan that the devices of one coordinate compute alone: the order in which they run, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product

from ..index.library import Library
from .graph import Value
from .layout import Layout, Mesh, Placement
from .plan import PlannedGraph, PlannedNode
from .precision import arithmetic, operand_types


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


def read_there(
    steps: Sequence[PlannedNode], placement: Placement, produced: Callable[[Value], Layout], library: Library
) -> Iterator[tuple[Value, Layout, str | None]]:
    """Values that steps at a placement read and do not make, in the layouts in which devices have them before, with the
    types that they are cast to. Of what is there already, the layout in which it is `produced`, without a cast: both
    are done there.
    """
    made = {value.name for step in steps for value in step.node.results}
    for step in steps:
        dtype = arithmetic(step.node, step.native, library)
        reads = zip(step.node.arguments, step.typed.arguments, operand_types(step.node, dtype), strict=True)
        for value, layout, wanted in reads:
            if value.name not in made:
                own = produced(value)
                there = layout.placement == own.placement == placement
                yield (value, own, None) if there else (value, layout, wanted)


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
