"""Which iterations of a segment's runs are listed: all, or where memory alone is asked for, some that stand for others.

What a device holds while iterations that are alike run grows evenly from one to the next, forward and backward: it is
the most at the first ones or at the last ones. So the first two and the last three of a run are listed, and between
them one that stands for all others: what it keeps counts as often, and so do the gradients of the one before it, which
the backward pass comes to when it is through with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graph.plan import PlannedSegment

BEFORE, BEHIND = 2, 3
"""Iterations that are listed before one that stands for others, and behind it."""
FULL = 2**31
"""Bytes of which what one bucket of 25 MiB of gradients holds is no small part: where a device holds less, all are
listed.
"""
PASSES = 2
"""Micro-batches that are listed at most: one, and the last, whose gradients are added to those of others and sent."""


@dataclass(frozen=True)
class Turn:
    """The run of an iteration and its number, and for how many iterations its tensors and gradients stand."""

    run: int
    iteration: int
    times: int = 1
    gradients: int = 1


def turns_of(step: PlannedSegment, run_again: int, *, brief: bool) -> Iterator[Turn]:
    """Every iteration of a segment, of which so many first ones are run again; or if it is `brief` some of them. Series
    of slices have one slice of each, so that all are listed.
    """
    brief = brief and not (step.segment.sliced or step.segment.stacked)
    for number, run in enumerate(step.runs):
        for part, _ in run.parts(run_again):
            others = part.count - BEFORE - BEHIND
            if not brief or others < 2:
                yield from (Turn(number, part.first + place) for place in range(part.count))
                continue
            yield from (Turn(number, part.first + place) for place in range(BEFORE - 1))
            yield Turn(number, part.first + BEFORE - 1, gradients=others)
            yield Turn(number, part.first + BEFORE, times=others)
            yield from (Turn(number, part.first + part.count - place) for place in range(BEHIND, 0, -1))
