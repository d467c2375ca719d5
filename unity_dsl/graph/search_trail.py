"""The trail of a search: what it tried, in order, with the simulated steps that led to each incumbent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """A plan that a search looked at: how many steps were simulated by then, by what `move` it was made, on which mesh,
    in how many micro-batches, the seconds of its step, None where it does not fit the memory, and whether it was the
    incumbent from then on.
    """

    evaluations: int
    move: str
    mesh: tuple[int, ...]
    micro_batches: int
    seconds: float | None
    best: bool = False
