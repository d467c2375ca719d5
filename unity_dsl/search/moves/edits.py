"""All edits of a point, those that are solved fastest first. A new kind is a file and a line here."""

from __future__ import annotations

from collections.abc import Iterator

from ...simulation.timeline import Timeline
from ..constants import Effort
from ..point import Point
from ..solver import Solver
from .branches import propose_branches
from .edit import Edit, Propose
from .fusions import propose_fusions
from .iterations import propose_iterations
from .meshes import propose_meshes
from .storage import propose_storage

EDITS: tuple[Propose, ...] = (propose_branches, propose_fusions, propose_storage, propose_iterations, propose_meshes)


def edits(point: Point, timeline: Timeline, solver: Solver, effort: Effort) -> Iterator[Edit]:
    """The edits of a point whose step is simulated. If it has branches, which are placed for its layouts,
    only fusions.
    """
    for propose in EDITS:
        if propose is propose_fusions or not point.restricted.placed:
            yield from propose(point, timeline, solver, effort)
