"""Edits of placement: parallel branches on disjoint groups of devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ...graph.interleaved_repeats import in_model_order
from ...simulation.timeline import Timeline
from ..branches.branch_placings import placings
from ..constants import BRANCHES, BRANCHES_SAVE, Effort
from ..point import Point, Restricted
from ..solver import Solver
from .edit import Edit


def propose_branches(point: Point, timeline: Timeline, solver: Solver, effort: Effort) -> Iterator[Edit]:
    """Edits that place parallel branches on disjoint devices. At best they save twice as much as the prices of
    operators say.
    """
    plan = point.plan
    if plan.mesh.size == 1 or plan.warnings or plan.passes.recomputed or plan.passes.regathered or plan.division:
        return
    plan = replace(plan.with_passes(interleaved=()), graph=in_model_order(plan))
    for placing in placings(plan, solver.meshes, solver.space.machine, point.context.library)[:BRANCHES]:
        if placing.saved >= BRANCHES_SAVE * timeline.seconds:
            told = f"branches on {placing.mesh.degrees[placing.axis]} disjoint groups of devices"
            placed = replace(point, restricted=Restricted("", placed=placing.placed))
            solved = partial(solver.on_mesh, placed, placing.mesh)
            yield Edit("branches", told, timeline.seconds - 2 * placing.saved, solved)
