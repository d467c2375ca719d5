"""An edit of a point: what it changes, the least that its step could take, and what solves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...simulation.timeline import Timeline
from ..constants import DEARER, RESTRICTED_BY_MEMORY, Effort
from ..point import Point
from ..solver import Solver


@dataclass(frozen=True)
class Edit:
    """A change of a point by its `kind`, as the trail tells it: the least seconds that its step could take, and what
    solves it.
    """

    kind: str
    told: str
    bound: float
    solved: Callable[[], Point | None]


Propose = Callable[[Point, Timeline, Solver, Effort], Iterator[Edit]]
"""The edits of one kind of a point whose step is simulated."""


def restricted_factor(point: Point) -> float:
    """Times the cost of a point, what a plan within a restriction may cost."""
    return DEARER if point.wanted.limit.unlimited is None else RESTRICTED_BY_MEMORY
