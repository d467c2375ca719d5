"""All tasks of a step whose identical passes of micro-batches were listed once: the first ones, the last, and copies.

The tasks of a pass depend on the state that earlier passes left. Two consecutive passes are compared. They must list
the same tasks, each with the same references to tasks of its own pass, of the pass before it, and to fixed tasks. They
must leave the same gradients waiting in buckets. By induction, all following passes but the last are then the same. The
last pass sends the accumulated gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from .listed_iterations import NotAlikeError
from .task import Task, copied, work_of


@dataclass(frozen=True)
class RepeatedPass:
    """A pass that is followed by so many `copies`: the tasks from `start` to `end`. The tasks of the pass before it
    begin at `before`. All other tasks may refer to those up to `first`, of the very first pass.
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
        """Whether its tasks repeat those of the pass before."""
        if self.start - self.before != self.count:
            return False
        before, own = tasks[self.before : self.start], tasks[self.start : self.end]
        return all(map(self._is_followed, before, own))

    def _is_followed(self, before: Task, task: Task) -> bool:
        if before.place != task.place or work_of(before) != work_of(task):
            return False
        return self._are_followed(before.after, task.after) and self._are_followed(before.reads, task.reads)

    def _are_followed(self, before: Sequence[int], numbers: Sequence[int]) -> bool:
        """Whether these references repeat those `before`. Each must be to the corresponding task one pass later, or to
        the same task if that precedes both passes.
        """
        return len(before) == len(numbers) and all(
            number - one == self.count if number >= self.before else number == one and one < self.first
            for one, number in zip(before, numbers, strict=True)
        )

    def with_copies(self, tasks: Sequence[Task]) -> list[Task]:
        """All tasks, including the copies. The given ones are changed. Raises NotAlikeError if the pass does not repeat
        the one before it, if it changes the memory held, or if later tasks refer to tasks of the repeated passes before
        it.
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
        """The references of a task after the pass, once copies are inserted."""
        if any(self.first <= number < self.start for number in numbers):
            raise NotAlikeError
        more = self.copies * self.count
        return tuple([number if number < self.start else number + more for number in numbers])
