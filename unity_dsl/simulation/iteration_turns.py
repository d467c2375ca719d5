"""Which iterations of a segment's runs are listed: all, or where memory alone is asked for, some that stand for others.

What a device holds while iterations that are alike run grows evenly from one to the next, forward and backward: it is
the most at the first ones or at the last ones. So the first two and the last three of a run are listed, and between
them one that stands for all others: what it keeps counts as often, and so do the gradients of the one before it, which
the backward pass comes to when it is through with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..graph.plan import PlannedSegment

BEFORE, BEHIND = 2, 3
"""Iterations that are listed before one that stands for others, and behind it."""
FULL = 2**31
"""Bytes of which what one bucket of 25 MiB of gradients holds is no small part: where a device holds less, all are
listed.
"""
AT_LAST = 2
"""Iterations of a fold that are listed behind those that are compared, at least."""
WORTH = 3
"""Copies for each iteration that is listed, of folds that are taken: to compare and to copy takes time as well. Of the
24 layers of bert_large a list with copies took 1.7 times what one of all takes, of the 48 of gpt2_xl half.
"""
PERIODS = 1, 2
"""Of a fold: after so many iterations buckets of gradients are sent where they were before. Tasks of an iteration refer
to those of as many iterations before it at most: to one, or where activations are offloaded to two.
"""
ATTEMPTS = 4
"""Times that a step is listed to find where folds are to begin anew. Buckets that small gradients fill in other
iterations of each micro-batch would take as many as there are micro-batches.
"""
PASSES = 2
"""Micro-batches that are listed at most: one, and the last, whose gradients are added to those of others and sent."""


class NotAlikeError(Exception):
    """Iterations of which copies are to be made are not alike, or something else refers to one of them alone. With
    these `cuts`, by segment and number, those of each fold may be.
    """

    def __init__(self, cuts: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__()
        self.cuts = frozenset(cuts)


@dataclass(frozen=True)
class Listed:
    """Which iterations are listed: all; if it is `brief`, a few that stand for others as to memory; with a `period`, of
    each fold of such a few of which copies are made. Folds begin anew at the iterations `cuts`, by segment and number.
    Passes of micro-batches that are alike are listed `once`.
    """

    brief: bool = False
    once: bool = False
    period: int = 0
    cuts: frozenset[tuple[str, int]] = frozenset()

    def folds(self, segment: str, first: int, count: int) -> Iterator[Fold]:
        """Those of consecutive iterations of a segment that are alike."""
        cuts = [first, *sorted(cut for name, cut in self.cuts if name == segment and first < cut < first + count)]
        for one, following in pairwise((*cuts, first + count)):
            yield Fold(segment, one, following - one, self.period)


EVERY = Listed()


@dataclass(frozen=True)
class Fold:
    """So many iterations of a segment, one after the other, that are alike if they are a `period` apart. Listed are the
    first ones, a period more than are compared, and the last ones; those between are copies of the last period of the
    first. A position is a number among those that are listed.
    """

    segment: str
    first: int
    count: int
    period: int = 1

    @property
    def before(self) -> int:
        """Iterations that are listed before the copies, the last period of which they are copies of."""
        return 3 * self.period

    @property
    def copies(self) -> int:
        others = self.count - self.before - self.period - AT_LAST
        return others - others % self.period

    @property
    def listed(self) -> int:
        return self.count - self.copies

    def is_middle(self, position: int) -> bool:
        """Whether others are copies of that iteration."""
        return self.before - self.period <= position < self.before

    def is_compared(self, position: int) -> bool:
        """Whether that iteration is to be like those a period before or behind."""
        return self.period <= position < self.before + self.period

    def alike(self, position: int) -> range:
        """The positions of the three that are to be alike, of one of these."""
        first = self.period + position % self.period
        return range(first, self.before + self.period, self.period)

    def copied(self, position: int) -> range:
        """The numbers of the copies of an iteration."""
        return range(position + self.period, self.before + self.copies, self.period)

    def iteration(self, position: int) -> int:
        """The number among all of the fold of one that is listed."""
        return position if position < self.before else position + self.copies

    def position_of(self, number: int) -> int | None:
        """That of an iteration by its number in the segment, None where it is not listed."""
        place = number - self.first
        if not 0 <= place < self.count:
            return None
        found = place if place < self.before else place - self.copies
        return found if self.iteration(found) == place else None


@dataclass(frozen=True)
class Stretch:
    """An iteration of a fold, by its position, in a pass of a micro-batch."""

    number: int
    backward: bool
    fold: Fold
    position: int

    @property
    def iterations(self) -> list[int]:
        """The numbers of its iteration in the fold, and of copies."""
        copies = self.fold.copied(self.position) if self.fold.is_middle(self.position) else ()
        return [self.fold.iteration(self.position), *copies]

    def is_left_behind(self, now: Stretch | None) -> bool:
        """Whether another stretch of the backward pass comes behind all copies, and not next to this one."""
        if now is None or now.fold != self.fold:
            return True
        return now.position < self.fold.period and self.position - now.position > self.fold.period

    @property
    def region(self) -> tuple[int, bool, Fold]:
        return self.number, self.backward, self.fold


@dataclass(frozen=True)
class Turn:
    """The run of an iteration and its number, and for how many iterations its tensors and gradients stand; its fold, if
    it is one of such.
    """

    run: int
    iteration: int
    times: int = 1
    gradients: int = 1
    fold: Fold | None = None

    @property
    def stored(self) -> int:
        """For how many its weights stand."""
        fold = self.fold
        return self.times if fold is None or not fold.is_middle(self.position) else 1 + len(fold.copied(self.position))

    @property
    def position(self) -> int:
        """That in its fold."""
        found = None if self.fold is None else self.fold.position_of(self.iteration)
        assert found is not None, "it is listed"
        return found


def turns_of(step: PlannedSegment, run_again: int, listed: Listed) -> Iterator[Turn]:
    """Every iteration of a segment, of which so many first ones are run again, or some of them. Series of slices have
    one slice of each, so that all are listed.
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
                yield from (Turn(number, part.first + place) for place in range(part.count))
                continue
            yield from (Turn(number, part.first + place) for place in range(BEFORE - 1))
            yield Turn(number, part.first + BEFORE - 1, gradients=others)
            yield Turn(number, part.first + BEFORE, times=others)
            yield from (Turn(number, part.first + part.count - place) for place in range(BEHIND, 0, -1))


def _folded(run: int, fold: Fold) -> Iterator[Turn]:
    """Those of a fold that are listed: all of a short one."""
    if fold.copies <= WORTH * fold.listed:
        yield from (Turn(run, fold.first + place) for place in range(fold.count))
    else:
        yield from (Turn(run, fold.first + fold.iteration(place), fold=fold) for place in range(fold.listed))
