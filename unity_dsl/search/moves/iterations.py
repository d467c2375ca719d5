"""Edits of repeats whose iterations differ: all iterations do as the last one, or as the first one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...graph.layout_typing import Configuration
from ...graph.plan import PlannedGraph, PlannedSegment
from ...simulation.exposure import exposed_values
from ...simulation.timeline import Timeline
from ..choices.restriction import node_path
from ..constants import Effort
from ..point import Point, Restricted
from ..solver import Solver
from .edit import Edit, restricted_factor


def propose_iterations(point: Point, timeline: Timeline, solver: Solver, effort: Effort) -> Iterator[Edit]:
    """Edits that make all iterations of repeats the same. At best no conversion of values is exposed."""
    for way in iterations_alike(point.plan.graph):
        bound = timeline.seconds * (1 - exposed_values(timeline))
        yield Edit("iterations", way.told, bound, partial(solver.near, point, way, restricted_factor(point)))


def iterations_alike(graph: PlannedGraph) -> list[Restricted]:
    """Restrictions by which all iterations of repeats do as their last one, or as their first one, where operators
    differ.
    """
    found = list[Restricted]()
    for which, told in ((-1, "last"), (0, "first")):
        configurations = dict(_of_differing(graph, "", which))
        if configurations and all(way.configurations != configurations for way in found):
            found.append(Restricted(f"all iterations do as the {told} one", configurations=configurations))
    return found


def _of_differing(graph: PlannedGraph, prefix: str, which: int) -> Iterator[tuple[str, Configuration]]:
    """Configurations by path in the first or the last iteration of repeats whose iterations differ."""
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            path = f"{prefix}{step.segment.name}."
            bodies = [dict(_configurations(run.body, path, which)) for run in step.runs]
            if any(body != bodies[0] for body in bodies):
                yield from bodies[which].items()
            else:
                yield from _of_differing(step.runs[which].body, path, which)


def _configurations(graph: PlannedGraph, prefix: str, which: int) -> Iterator[tuple[str, Configuration]]:
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            yield from _configurations(step.runs[which].body, f"{prefix}{step.segment.name}.", which)
        else:
            yield node_path(prefix, step.node), step.typed.configuration
