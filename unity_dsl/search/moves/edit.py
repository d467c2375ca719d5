"""An edit of a point: what it changes, a lower bound on its step, and what solves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...simulation.timeline import Timeline
from ..constants import DEARER, RESTRICTED_BY_MEMORY, Effort
from ..point import Point
from ..solver import Solver


@dataclass(frozen=True)
class Edit:
    """A change of a point: its `kind` in the trail, the words `told` as progress, the least seconds that its step could
    take, and what solves it.
    """

    kind: str
    told: str
    bound: float
    solved: Callable[[], Point | None]


Propose = Callable[[Point, Timeline, Solver, Effort], Iterator[Edit]]
"""Yields the edits of one kind for a point whose step is simulated."""


def restricted_factor(point: Point) -> float:
    """Most that a plan within a restriction may cost, as a multiple of the point's cost."""
    return DEARER if point.context.limit.unlimited is None else RESTRICTED_BY_MEMORY
