"""The trail of a search: what it tried, in order, with the simulated steps that led to each incumbent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """A plan that a search evaluated, after so many `evaluations` by the simulator. `move` made the plan. `seconds` is
    the time of its step, None if the plan does not fit in memory. `best` says whether it became the incumbent.
    """

    evaluations: int
    move: str
    mesh: tuple[int, ...]
    micro_batches: int
    seconds: float | None
    best: bool = False
