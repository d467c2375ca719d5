"""All tasks of a step of which alike passes of micro-batches were listed once: the first ones, the last, and copies.

A pass is listed by what the ones before it left. Where two, one behind the other, list the same tasks, each with the
same references to tasks of its own and of the pass before it and to fixed ones, and leave the same gradients waiting in
buckets, the next one does so as well: by induction all but the last one, which sends what the others add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from .iteration_turns import NotAlikeError
from .task import Task, copied, work_of


@dataclass(frozen=True)
class RepeatedPass:
    """A pass that is followed by so many `copies`: the tasks from `start` to `end`; those of the pass before it begin
    at `before`. To those up to `first`, of the very first pass, all others may refer.
    """

    first: int
    before: int
    start: int
    end: int
    copies: int = 0

    @property
    def count(self) -> int:
        return self.end - self.start

    def is_repeated(self, tasks: Sequence[Task]) -> bool:
        """Whether the tasks are those of the pass before once more."""
        if self.start - self.before != self.count:
            return False
        before, own = tasks[self.before : self.start], tasks[self.start : self.end]
        return all(map(self._is_followed, before, own))

    def _is_followed(self, before: Task, task: Task) -> bool:
        if before.place != task.place or work_of(before) != work_of(task):
            return False
        return self._are_followed(before.after, task.after) and self._are_followed(before.reads, task.reads)

    def _are_followed(self, before: Sequence[int], numbers: Sequence[int]) -> bool:
        """Whether these are of this pass and the one before, as far as those before are from theirs; or the same, of
        what comes before both.
        """
        return len(before) == len(numbers) and all(
            number - one == self.count if number >= self.before else number == one and one < self.first
            for one, number in zip(before, numbers, strict=True)
        )

    def with_copies(self, tasks: Sequence[Task]) -> list[Task]:
        """All tasks. The given ones are changed. Raises NotAlikeError where the pass is not that before it once more,
        leaves more memory held than was before it, or later tasks refer to what is not there once.
        """
        left = sum(task.allocated - task.freed for task in tasks[self.start : self.end])
        if left or not self.is_repeated(tasks):
            raise NotAlikeError
        listed, found = tasks[self.start : self.end], list(tasks[: self.end])
        for number in range(1, self.copies + 1):
            found += map(self._copy, listed, repeat(number * self.count))
        for task in tasks[self.end :]:
            task.after, task.reads = self._behind(task.after), self._behind(task.reads)
            found.append(task)
        return found

    def _copy(self, task: Task, behind: int) -> Task:
        copy = copied(task)
        first = self.first
        copy.after = tuple([number if number < first else number + behind for number in task.after])
        copy.reads = tuple([number if number < first else number + behind for number in task.reads])
        return copy

    def _behind(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """What a task behind the pass refers to, once there are copies of it."""
        if any(self.first <= number < self.start for number in numbers):
            raise NotAlikeError
        more = self.copies * self.count
        return tuple([number if number < self.start else number + more for number in numbers])
