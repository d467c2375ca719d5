"""All tasks of a step of which alike iterations were listed once: the first ones, the last ones, and copies between.

An iteration is listed by what the ones before it left. Where three, each a period behind the one before, list the same
tasks, each with the same references to tasks of its own, of its neighbours' and to fixed ones, and begin with the same
gradients waiting in buckets, or as many more in ones that are not sent, the next one does so as well: by induction all
up to the last ones. Copies of the one in the middle are the tasks that those between would be. Where the three differ,
nothing is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol, Self

from .iteration_turns import Fold, NotAlikeError, Stretch
from .task import Task, copied, work_of

_Region = tuple[int, bool, Fold]
"""All iterations of a fold in the forward or the backward pass of a micro-batch."""


class Waits(Protocol):
    """What decides about later tasks without being read by them."""

    def is_followed(self, other: Self, last: Self) -> bool:
        """Whether that of two others may be what is there a period later and after two, and so on."""


@dataclass(frozen=True)
class Mark:
    """From this task on those of a stretch are listed, or of none; and what waits in buckets then."""

    task: int
    stretch: Stretch | None
    waiting: Waits | None = None


@dataclass(frozen=True)
class _Span:
    """The tasks of a stretch, or between two."""

    first: int
    end: int
    stretch: Stretch | None
    waiting: Waits | None

    @property
    def count(self) -> int:
        return self.end - self.first


def unfolded(tasks: Sequence[Task], marks: Sequence[Mark], freed: Mapping[int, Mapping[Stretch, float]]) -> list[Task]:
    """All tasks, numbered anew, of those that are marked as some iterations of folds. The given ones are changed. The
    bytes that a task frees of those that tasks of a stretch built are `freed`, by its number. Raises NotAlikeError.
    """
    return _Unfolding(tasks, marks, freed).tasks()


def check_alike(tasks: Sequence[Task], marks: Sequence[Mark], number: int) -> None:
    """Raises NotAlikeError where iterations of a pass, of which copies are to be made, are not alike."""
    unfolding = _Unfolding(tasks, marks, {})
    for region in unfolding.regions:
        if region[0] == number:
            unfolding.compared(region)


@dataclass(frozen=True)
class _Reference:
    """A task by its place behind the start of an iteration of a region, so many `ahead` of the one that refers to it if
    it is `relative`; the start is that of the step without a region.
    """

    starts: Sequence[int] = (0,)
    ahead: int = 0
    relative: bool = False
    place: int = 0

    def of(self, iteration: int) -> int:
        """Its number, as the given iteration of a fold refers to it."""
        return self.starts[iteration + self.ahead if self.relative else self.ahead] + self.place


_Alike = tuple[tuple[_Reference, ...], tuple[_Reference, ...], "_Place"]
"""What a task of an iteration waits for and reads, and its place."""


@dataclass
class _Unfolding:
    """Spans of listed tasks, and where each iteration of a region starts among all tasks."""

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
        """Spans with the iteration of their fold, copies where they come: in the forward pass behind the iterations of
        which they are copies, in the backward pass before.
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
        """What the tasks of a period of iterations refer to, and their places, where those of three are alike."""
        by_position, fold = self.regions[region], region[2]
        periods = range(fold.period, 2 * fold.period)
        return [self._compared([by_position[alike] for alike in fold.alike(position)]) for position in periods]

    def _compared(self, spans: Sequence[_Span]) -> list[_Alike]:
        """The same of an iteration."""
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
        """What three iterations refer to: one task, or tasks as far from each of them."""
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
        """A task that all iterations refer to: none of a compared one."""
        span = self.span_of[number]
        stretch = self.spans[span].stretch
        if stretch is not None and stretch.fold.is_compared(stretch.position):
            raise NotAlikeError
        return _Reference(place=self.moved[span] + number - self.spans[span].first)

    # ------------------------------------------------------------------------------------------ other tasks

    def _outside(self, numbers: tuple[int, ...], source: _Span) -> tuple[int, ...]:
        """What a task of no compared iteration refers to: of copies that of all, where it is of the three."""
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
        """Bytes that a task of no compared iteration frees of what copies built."""
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
        """That a task is of the same fold, one of the first or the last iterations as the other is."""
        own, fold = source.stretch, target.fold
        if own is None or own.fold != fold or fold.is_middle(target.position):
            raise NotAlikeError
        if (own.position < fold.before) != (target.position < fold.before):
            raise NotAlikeError


@dataclass(frozen=True)
class _Place:
    """A path with numbers of iterations, each relative to that of the task, between texts."""

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
    """The place of a task by its iteration, where those of three are alike."""
    found = {
        _parsed(span.stretch.fold, place, span.stretch.position)
        for place, span in zip(of_three, spans, strict=True)
        if span.stretch is not None
    }
    if len(found) > 1:
        raise NotAlikeError
    return found.pop()


def _parsed(fold: Fold, place: str, position: int) -> _Place:
    """The numbers of a place are those of iterations that are listed."""
    texts = re.split(rf"(?<![\w.])({re.escape(fold.segment)}\.)(\d+)(?=\.)", place)
    positions = [fold.position_of(int(number)) for number in texts[2::3]]
    ahead = [fold.first + other - position for other in positions if other is not None]
    if len(ahead) < len(positions):
        raise NotAlikeError
    before = [text + name for text, name in zip(texts[0::3], texts[1::3], strict=False)]
    return _Place((*before, texts[-1]), tuple(ahead))
