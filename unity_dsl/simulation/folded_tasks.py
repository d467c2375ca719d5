"""All tasks of a step whose identical iterations were listed once: the first ones, the last ones, and copies between.

The tasks of an iteration depend on the state that earlier ones left. Three iterations are compared, each one period
after the other. They must list the same tasks, each with the same references to tasks of its own iteration, of its
neighbours, and to fixed tasks. They must begin with the same gradients waiting in buckets, or with equal growth in
buckets that are not sent. By induction, all following iterations up to the last ones are then the same. The iterations
between are copies of the middle one. If the three differ, nothing is concluded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol, Self

from .listed_iterations import Fold, NotAlikeError, Stretch
from .task import Task, copied, work_of

_Region = tuple[int, bool, Fold]
"""All iterations of a fold in the forward or the backward pass of a micro-batch."""


class Waits(Protocol):
    """State that influences later tasks although they do not read it."""

    def is_followed(self, other: Self, last: Self) -> bool:
        """Whether `other` and `last`, one and two periods later, may continue this pattern."""


@dataclass(frozen=True)
class Mark:
    """From this task on, the tasks of a stretch are listed, or of none. `waiting` is what waits in buckets then."""

    task: int
    stretch: Stretch | None
    waiting: Waits | None = None


@dataclass(frozen=True)
class _Span:
    """The tasks of a stretch, or those between two stretches."""

    first: int
    end: int
    stretch: Stretch | None
    waiting: Waits | None

    @property
    def count(self) -> int:
        return self.end - self.first


def unfolded(tasks: Sequence[Task], marks: Sequence[Mark], freed: Mapping[int, Mapping[Stretch, float]]) -> list[Task]:
    """All tasks, renumbered, from tasks that are marked as some iterations of folds. The given ones are changed.
    `freed` has, by the number of a task, the bytes that it frees of those that tasks of a stretch built. Raises
    NotAlikeError if iterations that are to be copied differ.
    """
    return _Unfolding(tasks, marks, freed).tasks()


def check_alike(tasks: Sequence[Task], marks: Sequence[Mark], number: int) -> None:
    """Raises NotAlikeError if iterations of a pass that are to be copied differ."""
    unfolding = _Unfolding(tasks, marks, {})
    for region in unfolding.regions:
        if region[0] == number:
            unfolding.compared(region)


@dataclass(frozen=True)
class _Reference:
    """A task at the offset `place` from the start of an iteration of a region. If `relative`, the iteration is the one
    `ahead` of the referring one. Without a region, the start is that of the step.
    """

    starts: Sequence[int] = (0,)
    ahead: int = 0
    relative: bool = False
    place: int = 0

    def of(self, iteration: int) -> int:
        """The task's number, as the given iteration of a fold refers to it."""
        return self.starts[iteration + self.ahead if self.relative else self.ahead] + self.place


_Alike = tuple[tuple[_Reference, ...], tuple[_Reference, ...], "_Place"]
"""The references of a task of an iteration, `after` and `reads`, and its place."""


@dataclass
class _Unfolding:
    """Spans of listed tasks, and the start of each iteration of a region among all tasks."""

    listed: Sequence[Task]
    marks: Sequence[Mark]
    freed: Mapping[int, Mapping[Stretch, float]]
    spans: list[_Span] = field(init=False)
    span_of: list[int] = field(init=False)
    regions: dict[_Region, dict[int, _Span]] = field(init=False)
    starts: dict[_Region, list[int]] = field(init=False)
    moved: list[int] = field(init=False)

    def __post_init__(self) -> None:
        ends = [*(mark.task for mark in self.marks), len(self.listed)]
        borders = [Mark(0, None), *self.marks]
        self.spans = [
            _Span(mark.task, end, mark.stretch, mark.waiting)
            for mark, end in zip(borders, ends, strict=True)
            if end > mark.task or mark.stretch is not None
        ]
        self.span_of = [number for number, span in enumerate(self.spans) for _ in range(span.count)]
        self.regions = {}
        for span in self.spans:
            if (stretch := span.stretch) is not None:
                self.regions.setdefault(stretch.region, {})[stretch.position] = span
        if any(len(by_position) < fold.listed for (_, _, fold), by_position in self.regions.items()):
            raise NotAlikeError
        self.moved, self.starts, now = [], {region: [0] * region[2].count for region in self.regions}, 0
        for span, iteration in self._in_order():
            if span.stretch is not None:
                self.starts[span.stretch.region][iteration] = now
            now += span.count
        now = 0
        for span, iteration in self._in_order():
            if span.stretch is None or iteration == span.stretch.fold.iteration(span.stretch.position):
                self.moved.append(now)
            now += span.count

    def _in_order(self) -> Iterator[tuple[_Span, int]]:
        """All spans in order, each with its iteration of the fold. Copies come after the iterations that they copy in
        the forward pass, and before them in the backward pass.
        """
        for span in self.spans:
            if (stretch := span.stretch) is None:
                yield span, 0
                continue
            fold, own = stretch.fold, (span, stretch.fold.iteration(stretch.position))
            copies: list[tuple[_Span, int]] = []
            if stretch.position == fold.before - 1:
                by_position = self.regions[stretch.region]
                middle = range(fold.before - fold.period, fold.before)
                copies = [(by_position[position], number) for position in middle for number in fold.copied(position)]
                copies.sort(key=lambda copy: copy[1], reverse=stretch.backward)
            yield from (*copies, own) if stretch.backward else (own, *copies)

    def tasks(self) -> list[Task]:
        compared = {region: self.compared(region) for region in self.regions}
        found: list[Task] = []
        for span, iteration in self._in_order():
            stretch, listed = span.stretch, self.listed[span.first : span.end]
            if stretch is None or not stretch.fold.is_compared(stretch.position):
                for number, task in enumerate(listed, span.first):
                    task.freed += self._freed_of_copies(self.freed.get(number, {}), span)
                    task.after, task.reads = self._outside(task.after, span), self._outside(task.reads, span)
                found += listed
                continue
            fold = stretch.fold
            own = listed if iteration == fold.iteration(stretch.position) else map(copied, listed)
            alike = compared[stretch.region][stretch.position % fold.period]
            for task, (after, reads, place) in zip(own, alike, strict=True):
                task.after = tuple([one.of(iteration) for one in after])
                task.reads = tuple([one.of(iteration) for one in reads])
                task.place = place.of(iteration)
                found.append(task)
        return found

    # ------------------------------------------------------------------------------------------ alike iterations

    def compared(self, region: _Region) -> list[list[_Alike]]:
        """The references and places of the tasks of one period. Raises NotAlikeError if the three compared periods
        differ.
        """
        by_position, fold = self.regions[region], region[2]
        periods = range(fold.period, 2 * fold.period)
        return [self._compared([by_position[alike] for alike in fold.alike(position)]) for position in periods]

    def _compared(self, spans: Sequence[_Span]) -> list[_Alike]:
        """As `compared`, for one iteration of the period."""
        if len({span.count for span in spans}) > 1:
            raise NotAlikeError
        last, middle, first = (span.waiting for span in spans)
        if not (first is None or middle is None or last is None or first.is_followed(middle, last)):
            raise NotAlikeError
        found = []
        for same in zip(*(self.listed[span.first : span.end] for span in spans), strict=True):
            if len(set(map(work_of, same))) > 1:
                raise NotAlikeError
            after = self._references(spans, [task.after for task in same])
            reads = self._references(spans, [task.reads for task in same])
            found.append((after, reads, _place(spans, [task.place for task in same])))
        return found

    def _references(self, spans: Sequence[_Span], of_three: Sequence[tuple[int, ...]]) -> tuple[_Reference, ...]:
        if len({len(numbers) for numbers in of_three}) > 1:
            raise NotAlikeError
        return tuple([self._reference(spans, same) for same in zip(*of_three, strict=True)])

    def _reference(self, sources: Sequence[_Span], same: tuple[int, ...]) -> _Reference:
        """The common reference of three iterations: one task, or tasks at the same distance from each iteration."""
        if len(set(same)) == 1:
            return self._fixed(same[0])
        found = set()
        for number, source in zip(same, sources, strict=True):
            span, own = self.spans[self.span_of[number]], source.stretch
            stretch = span.stretch
            if own is None or stretch is None or stretch.fold != own.fold:
                raise NotAlikeError
            found.add((stretch.number, stretch.backward, stretch.position - own.position, number - span.first))
        if len(found) > 1:
            raise NotAlikeError
        pass_number, backward, ahead, place = found.pop()
        assert own is not None, "a stretch"
        return _Reference(self.starts[pass_number, backward, own.fold], ahead, True, place)

    def _fixed(self, number: int) -> _Reference:
        """A task that all iterations refer to. Raises NotAlikeError if it is in a compared iteration."""
        span = self.span_of[number]
        stretch = self.spans[span].stretch
        if stretch is not None and stretch.fold.is_compared(stretch.position):
            raise NotAlikeError
        return _Reference(place=self.moved[span] + number - self.spans[span].first)

    # ------------------------------------------------------------------------------------------ other tasks

    def _outside(self, numbers: tuple[int, ...], source: _Span) -> tuple[int, ...]:
        """The references of a task that is in no compared iteration. References to all three compared iterations are
        extended to the copies.
        """
        found: list[int] = []
        for span, some in groupby(numbers, self.span_of.__getitem__):
            at, stretch = self.spans[span], self.spans[span].stretch
            places, starts = [number - at.first for number in some], [self.moved[span]]
            if stretch is not None and stretch.fold.is_compared(stretch.position):
                fold, spans = stretch.fold, self.regions[stretch.region]
                alike = (spans[one].first + place for one in fold.alike(stretch.position) for place in places)
                if not all(number in numbers for number in alike):
                    self._check_beside(source, stretch)
                elif fold.is_middle(stretch.position):
                    starts += [self.starts[stretch.region][copy] for copy in fold.copied(stretch.position)]
                    starts = starts[::-1] if stretch.backward else starts
            found += [start + place for start in starts for place in places]
        return tuple(sorted(found) if list(numbers) == sorted(numbers) else found)

    def _freed_of_copies(self, freed: Mapping[Stretch, float], source: _Span) -> float:
        """Bytes built by copies that a task of no compared iteration frees."""
        more = 0.0
        for stretch, count in freed.items():
            fold = stretch.fold
            if fold.is_compared(stretch.position):
                alike = fold.alike(stretch.position)
                if any(freed.get(replace(stretch, position=position)) != count for position in alike):
                    self._check_beside(source, stretch)
                elif fold.is_middle(stretch.position):
                    more += len(fold.copied(stretch.position)) * count
        return more

    @staticmethod
    def _check_beside(source: _Span, target: Stretch) -> None:
        """Raises NotAlikeError unless both are in the same fold, on the same side of its copies, and the target is not
        copied.
        """
        own, fold = source.stretch, target.fold
        if own is None or own.fold != fold or fold.is_middle(target.position):
            raise NotAlikeError
        if (own.position < fold.before) != (target.position < fold.before):
            raise NotAlikeError


@dataclass(frozen=True)
class _Place:
    """A path between whose `texts` are iteration numbers, each relative to the iteration of the task."""

    texts: tuple[str, ...]
    numbers: tuple[int, ...]

    def of(self, iteration: int) -> str:
        if not self.numbers:
            return self.texts[0]
        return "".join([*self._parts(iteration), self.texts[-1]])

    def _parts(self, iteration: int) -> Iterator[str]:
        for text, number in zip(self.texts, self.numbers, strict=False):
            yield f"{text}{number + iteration}"


def _place(spans: Sequence[_Span], of_three: Sequence[str]) -> _Place:
    """The place of a task as a function of its iteration. Raises NotAlikeError if the three places differ."""
    found = {
        _parsed(span.stretch.fold, place, span.stretch.position)
        for place, span in zip(of_three, spans, strict=True)
        if span.stretch is not None
    }
    if len(found) > 1:
        raise NotAlikeError
    return found.pop()


def _parsed(fold: Fold, place: str, position: int) -> _Place:
    """The place in parts. Raises NotAlikeError if it contains an iteration that is not listed."""
    texts = re.split(rf"(?<![\w.])({re.escape(fold.segment)}\.)(\d+)(?=\.)", place)
    positions = [fold.position_of(int(number)) for number in texts[2::3]]
    ahead = [fold.first + other - position for other in positions if other is not None]
    if len(ahead) < len(positions):
        raise NotAlikeError
    before = [text + name for text, name in zip(texts[0::3], texts[1::3], strict=False)]
    return _Place((*before, texts[-1]), tuple(ahead))
