"""Edits of storage: all trained weights are stored in one way, whole or in slices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...simulation.exposure import exposed_gathers, exposed_sums
from ...simulation.task import COMPUTE, Phase
from ...simulation.timeline import Timeline
from ..choices.restriction import Keeping
from ..constants import Effort
from ..point import Point, Restricted
from ..solver import Solver
from .edit import Edit, restricted_factor

WEIGHTS = tuple(Restricted(f"all weights are kept {keeping.value}", keeping) for keeping in Keeping)


def propose_storage(point: Point, timeline: Timeline, solver: Solver, effort: Effort) -> Iterator[Edit]:
    """Edits that store all weights in one way. At best no sum or gather is exposed, and devices update
    hardly anything.
    """
    if point.plan.mesh.size == 1:
        return
    hidden = timeline.seconds * (exposed_sums(timeline) + exposed_gathers(timeline)) + _update_seconds(timeline)
    for way in WEIGHTS:
        if way.keeping is not Keeping.HYBRID or len(point.plan.mesh.axes) > 1:
            solved = partial(solver.near, point, way, restricted_factor(point))
            yield Edit("storage", way.told, timeline.seconds - hidden, solved)


def _update_seconds(timeline: Timeline) -> float:
    """Seconds of the optimizer's kernels on device 0."""
    return sum(
        float(timeline.end[number] - timeline.start[number])
        for number, task in enumerate(timeline.graph.tasks)
        if task.device == 0 and task.phase is Phase.UPDATE and task.channel == COMPUTE
    )
