"""Operators of a plan that only the devices of one coordinate compute: the order in which they run, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product

from ..index.library import Library
from .graph import Value
from .layout import Layout, Mesh, Placement
from .plan import PlannedGraph, PlannedNode
from .precision import arithmetic, operand_types


def different_places(graph: PlannedGraph, mesh: Mesh) -> list[dict[int, int]]:
    """Coordinates, by mesh axis, of one device for each set of devices that do the same; one without coordinates if all
    devices do.
    """
    axes = sorted({axis for node in graph.nodes() for axis, _ in node.placement})
    found = product(*(range(mesh.axes[axis].degree) for axis in axes))
    return [dict(zip(axes, coordinates, strict=True)) for coordinates in found]


def in_stretches(steps: Sequence[PlannedNode]) -> Iterator[tuple[Placement, list[PlannedNode]]]:
    """The steps by placement, in a topological order in which steps on the same devices are adjacent if possible. The
    order does not change if no step is placed.
    """
    if not any(step.placement for step in steps):
        return iter([((), list(steps))] if steps else [])
    return ((where, list(same)) for where, same in groupby(_ordered(steps), lambda step: step.placement))


def read_there(
    steps: Sequence[PlannedNode], placement: Placement, produced: Callable[[Value], Layout], library: Library
) -> Iterator[tuple[Value, Layout, str | None]]:
    """The values that steps at a placement read and do not make, with the layouts in which devices have them before and
    the types to which they are cast. A value that is at the placement already has the layout in which it is `produced`
    and no cast: both conversions are done there.
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
    """Kahn's topological order. The next step is the first ready one that runs where the one before did, or else the
    first ready one.
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
