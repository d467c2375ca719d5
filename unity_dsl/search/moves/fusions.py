"""Edits of algebra: operators fused by rules where that costs less in the layouts of a point."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...simulation.timeline import Timeline
from ..constants import Effort
from ..point import Point
from ..solver import Solver
from .edit import Edit


def propose_fusions(point: Point, timeline: Timeline, solver: Solver, effort: Effort) -> Iterator[Edit]:
    """Edits that apply fusions in the layouts of a plan. Their bound is 0: what they save is known once
    they are found.
    """
    if solver.space.fusions:
        yield Edit("fusions", "operators fused in the layouts of the plan", 0.0, partial(solver.fused, point))
