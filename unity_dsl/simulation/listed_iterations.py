"""Which iterations of a segment's runs are listed: all, or a few that represent others.

The peak memory alone needs only a few. A device's memory changes linearly over identical iterations, forward and
backward, so the peak is at the first ones or at the last ones. The first two and the last three iterations of a run are
listed, and one between them that represents all others. Its saved tensors count as often. The gradients of the
iteration before it also count as often, because the backward pass reaches that one next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..graph.plan import PlannedSegment

BEFORE, BEHIND = 2, 3
"""Number of iterations that are listed before one that represents others, and after it."""
FULL = 2**31
"""Memory in bytes below which all iterations are listed, because one bucket of 25 MiB of gradients is no small part of
it.
"""
AT_LAST = 2
"""Minimum number of iterations of a fold that are listed after the compared ones."""
WORTH = 3
"""A fold is copied only if it has more copies per listed iteration than this, since comparing and copying take time.
For the 24 layers of bert_large, a list with copies took 1.7 times as long as a list of all; for the 48 of gpt2_xl, half
as long.
"""
PERIODS = 1, 2
"""Periods of folds, in iterations: after one period, buckets of gradients are sent at the same places again. Tasks of
an iteration refer to tasks at most one period back: one iteration, or two if activations are offloaded.
"""
ATTEMPTS = 4
"""Number of times that a step is listed to find where folds must be split. If small gradients fill buckets in other
iterations of each micro-batch, as many attempts as micro-batches would be needed.
"""
PASSES = 2
"""Maximum number of micro-batches that are listed for the peak memory: one, and the last. The gradients of the last one
are added to earlier ones and sent.
"""


class NotAlikeError(Exception):
    """Iterations that are to be copied differ, or another task refers to one of them alone. They may be identical if
    their folds are split at `cuts`, each a segment and a number.
    """

    def __init__(self, cuts: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__()
        self.cuts = frozenset(cuts)


@dataclass(frozen=True)
class Listed:
    """Which iterations are listed: by default all. If `brief`, a few represent the others for the peak memory. With a
    `period`, a few of each fold are listed and the others are copied. Folds are split at the iterations `cuts`, each a
    segment and a number. Identical passes of micro-batches are listed `once`.
    """

    brief: bool = False
    once: bool = False
    period: int = 0
    cuts: frozenset[tuple[str, int]] = frozenset()

    def folds(self, segment: str, first: int, count: int) -> Iterator[Fold]:
        """The folds of consecutive iterations of a segment, split at the cuts."""
        cuts = [first, *sorted(cut for name, cut in self.cuts if name == segment and first < cut < first + count)]
        for one, following in pairwise((*cuts, first + count)):
            yield Fold(segment, one, following - one, self.period)


EVERY = Listed()


@dataclass(frozen=True)
class Fold:
    """Consecutive iterations of a segment that are identical if they are a `period` apart. Three periods are listed at
    the start, and at least one period and `AT_LAST` iterations at the end. Those between are copies of the third
    period. The first period is not compared. A position is an index among the listed iterations.
    """

    segment: str
    first: int
    count: int
    period: int = 1

    @property
    def before(self) -> int:
        """The number of iterations that are listed before the copies. The last period of these is copied."""
        return 3 * self.period

    @property
    def copies(self) -> int:
        others = self.count - self.before - self.period - AT_LAST
        return others - others % self.period

    @property
    def listed(self) -> int:
        return self.count - self.copies

    def is_middle(self, position: int) -> bool:
        """Whether other iterations are copies of the one at that position."""
        return self.before - self.period <= position < self.before

    def is_compared(self, position: int) -> bool:
        """Whether that iteration must equal those one period before or after it."""
        return self.period <= position < self.before + self.period

    def alike(self, position: int) -> range:
        """The positions of the three iterations that must be identical, given the position of one of them."""
        first = self.period + position % self.period
        return range(first, self.before + self.period, self.period)

    def copied(self, position: int) -> range:
        """The numbers within the fold of the copies of an iteration."""
        return range(position + self.period, self.before + self.copies, self.period)

    def iteration(self, position: int) -> int:
        """The number within the fold of a listed iteration."""
        return position if position < self.before else position + self.copies

    def position_of(self, number: int) -> int | None:
        """The position of an iteration, given its number in the segment; None if it is not listed."""
        place = number - self.first
        if not 0 <= place < self.count:
            return None
        found = place if place < self.before else place - self.copies
        return found if self.iteration(found) == place else None


@dataclass(frozen=True)
class Stretch:
    """An iteration of a fold, by its position, in the forward or backward pass of the micro-batch `number`."""

    number: int
    backward: bool
    fold: Fold
    position: int

    @property
    def iterations(self) -> list[int]:
        """The numbers within the fold of its iteration and of the copies."""
        copies = self.fold.copied(self.position) if self.fold.is_middle(self.position) else ()
        return [self.fold.iteration(self.position), *copies]

    def is_left_behind(self, now: Stretch | None) -> bool:
        """Whether the backward pass, which is at `now`, is past all copies and not adjacent to this stretch."""
        if now is None or now.fold != self.fold:
            return True
        return now.position < self.fold.period and self.position - now.position > self.fold.period

    @property
    def region(self) -> tuple[int, bool, Fold]:
        return self.number, self.backward, self.fold


@dataclass(frozen=True)
class ListedIteration:
    """A listed iteration: the number of its run, and its own. Its tensors represent those of `times` iterations, its
    gradients those of `gradients`. `fold` is its fold, if it is in one.
    """

    run: int
    iteration: int
    times: int = 1
    gradients: int = 1
    fold: Fold | None = None

    @property
    def stored(self) -> int:
        """The number of iterations whose weights its own represent."""
        fold = self.fold
        return self.times if fold is None or not fold.is_middle(self.position) else 1 + len(fold.copied(self.position))

    @property
    def position(self) -> int:
        """Its position in its fold."""
        found = None if self.fold is None else self.fold.position_of(self.iteration)
        assert found is not None, "it is listed"
        return found


def listed_iterations(step: PlannedSegment, run_again: int, listed: Listed) -> Iterator[ListedIteration]:
    """The listed iterations of a segment whose first `run_again` ones are recomputed or offloaded. All are listed if
    the segment has series of slices, because each iteration has a slice of its own.
    """
    if step.segment.sliced or step.segment.stacked:
        listed = EVERY
    for number, run in enumerate(step.runs):
        for part, _ in run.parts(run_again):
            if listed.period:
                for fold in listed.folds(step.segment.name, part.first, part.count):
                    yield from _folded(number, fold)
                continue
            others = part.count - BEFORE - BEHIND
            if not listed.brief or others < 2:
                yield from (ListedIteration(number, part.first + place) for place in range(part.count))
                continue
            yield from (ListedIteration(number, part.first + place) for place in range(BEFORE - 1))
            yield ListedIteration(number, part.first + BEFORE - 1, gradients=others)
            yield ListedIteration(number, part.first + BEFORE, times=others)
            yield from (ListedIteration(number, part.first + part.count - place) for place in range(BEHIND, 0, -1))


def _folded(run: int, fold: Fold) -> Iterator[ListedIteration]:
    """The listed iterations of a fold: all if few would be copied."""
    if fold.copies <= WORTH * fold.listed:
        yield from (ListedIteration(run, fold.first + place) for place in range(fold.count))
    else:
        yield from (ListedIteration(run, fold.first + fold.iteration(place), fold=fold) for place in range(fold.listed))
