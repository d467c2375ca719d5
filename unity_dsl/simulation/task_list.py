"""Lists the tasks of a step in the order in which the program issues them, and counts the holders of each storage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..index.lowering.local_tensor import Storage
from .folded_tasks import Mark, Waits, check_alike, unfolded
from .listed_iterations import Stretch
from .repeated_passes import RepeatedPass
from .task import COMPUTE, Phase, Purpose, Task, TaskGraph, Traffic


@dataclass(frozen=True)
class HeldMost:
    """A device's peak memory in bytes, how much of it is parameters' gradients, and the task that runs `at` that time.
    `at` is empty if the peak is before all tasks.
    """

    bytes: float
    gradients: float
    at: str


class TaskList:
    """The tasks listed so far. A storage exists from the task that builds it until its last holder drops it. A storage
    that nobody holds when its task is `settled` exists while that task runs. Kernels run in order, so each waits for
    what earlier kernels wait for. For each storage that a task `reads`, its input is made by the last earlier task that
    `builds` it or writes `into` it. If one iteration represents several, its storages count for all of them, and the
    list is `abridged`.
    """

    def __init__(self) -> None:
        self.phase = Phase.FORWARD
        self.abridged = False
        self._tasks: list[Task] = []
        self._holders: dict[Storage, int] = {}
        self._waited: list[int] = []
        self._latest = -1
        self._written: dict[Storage, tuple[int, ...]] = {}
        self._more: dict[Storage, float] = {}
        self._gradients: dict[Storage, float] = {}
        self._gradients_made: defaultdict[int, float] = defaultdict(float)
        self._gradients_freed: defaultdict[int, float] = defaultdict(float)
        self._seen: list[list[Storage]] = []
        self._marks: list[Mark] = []
        self._built: dict[Storage, Stretch] = {}
        self._freed: defaultdict[int, dict[Stretch, float]] = defaultdict(dict)
        self._passes: list[tuple[int, Waits]] = []
        self._copies = 0

    # ------------------------------------------------------------------------------------------ tasks

    def kernel(
        self,
        name: str,
        place: str,
        seconds: float,
        launches: int = 1,
        builds: Iterable[Storage] = (),
        limit: str = "memory",
        reads: Iterable[Storage] = (),
        into: Iterable[Storage] = (),
    ) -> int:
        """A kernel on the device's compute stream, after everything that was waited for."""
        after, self._waited = tuple(self._waited), []
        task = Task(name, place, self.phase, seconds, after, COMPUTE, launches=launches, limit=limit)
        self._latest = self._add(task, builds, reads, into)
        return self._latest

    def collective(
        self,
        name: str,
        place: str,
        seconds: float,
        channel: str,
        traffic: tuple[Traffic, ...],
        sent: float,
        builds: Iterable[Storage] = (),
        limit: str = "",
        purpose: Purpose = Purpose.VALUES,
        reads: Iterable[Storage] = (),
        into: Iterable[Storage] = (),
    ) -> int:
        """Communication in a group. It starts after the kernels so far, and overlaps with later ones until one waits
        for it.
        """
        after = (*([self._latest] if self._latest >= 0 else []), *self._waited)
        task = Task(
            name, place, self.phase, seconds, after, channel, traffic=traffic, sent=sent, limit=limit, purpose=purpose
        )
        return self._add(task, builds, reads, into)

    def wait(self, task: int) -> None:
        """Kernels listed from here on wait for that task."""
        self._waited.append(task)

    @property
    def stretch(self) -> Stretch | None:
        """The stretch whose tasks are being listed."""
        return self._marks[-1].stretch if self._marks else None

    def mark(self, stretch: Stretch | None, waiting: Waits | None = None) -> None:
        """Marks the tasks from here on as those of a stretch, or of none, and notes what waits in buckets."""
        self._marks.append(Mark(len(self._tasks), stretch, waiting))

    def begin_pass(self, waiting: Waits) -> bool:
        """Begins the pass of a micro-batch and notes what waits in buckets. Returns whether the previous pass listed
        the same tasks as the pass before it, and left the same gradients waiting. Raises NotAlikeError if iterations
        that are to be copied differ.
        """
        if self._marks:
            check_alike(self._tasks, self._marks, len(self._passes))
        self._passes.append((len(self._tasks), waiting))
        if len(self._passes) < 3 or waiting != self._passes[-2][1]:
            return False
        return self._last_but_one([start for start, _ in self._passes]).is_repeated(self._tasks)

    def repeat_pass(self, times: int) -> None:
        """Repeats the previous pass so many times, before the pass that was begun last."""
        self._copies = times

    def _last_but_one(self, starts: Sequence[int]) -> RepeatedPass:
        """The pass before the one that was begun last. `starts` are the first tasks of the passes."""
        before, start, end = starts[-3:]
        return RepeatedPass(min(starts[1], before), before, start, end, self._copies)

    def alias_result(self, result: Storage, parts: Iterable[Storage]) -> None:
        """Readers of `result`, which no task makes, read `parts` instead."""
        made = (other for storage in parts for other in self._written.get(storage, ()))
        self._written[result] = tuple(dict.fromkeys(made))

    def _add(self, task: Task, builds: Iterable[Storage], reads: Iterable[Storage], into: Iterable[Storage]) -> int:
        number, built, written = len(self._tasks), list(builds), self._written
        task.reads = tuple(dict.fromkeys(other for storage in reads for other in written.get(storage, ())))
        task.allocated = float(sum(storage.bytes for storage in built))
        written |= dict.fromkeys((*built, *into), (number,))
        self._tasks.append(task)
        if self.stretch is not None:
            self._built |= dict.fromkeys(built, self.stretch)
        for seen in self._seen:
            seen += built
        return number

    # ------------------------------------------------------------------------------------------ memory

    def hold(self, storages: Iterable[Storage]) -> None:
        holders = self._holders
        for storage in storages:
            holders[storage] = holders.get(storage, 0) + 1

    def drop(self, storages: Iterable[Storage]) -> None:
        """Removes one holder of each. A storage without holders is freed at the end of the last task listed so far."""
        for storage in storages:
            self.release(storage)
            if storage not in self._holders:
                self.free(storage)

    def release(self, storage: Storage) -> None:
        """Removes one holder of a storage that soon has another: it is not freed."""
        self._holders[storage] -= 1
        if self._holders[storage] == 0:
            del self._holders[storage]

    def holders(self, storage: Storage) -> int:
        return self._holders.get(storage, 0)

    def settle(self, built: Iterable[Storage]) -> None:
        """Frees what the last task built and nobody holds."""
        for storage in built:
            if storage not in self._holders:
                self.free(storage)

    def free(self, storage: Storage) -> None:
        if self._tasks:
            self._tasks[-1].freed += storage.bytes + self._more.pop(storage, 0.0)
            if (stretch := self._built.pop(storage, None)) is not None:
                of_task = self._freed[len(self._tasks) - 1]
                of_task[stretch] = of_task.get(stretch, 0.0) + storage.bytes
            if storage in self._gradients:
                self._gradients_freed[len(self._tasks) - 1] += self._gradients.pop(storage)

    def mark_gradient(self, storage: Storage, more: float = 0.0) -> None:
        """Notes that a held storage is of parameters' gradients, and counts `more` bytes in addition to its own."""
        before = self._gradients.get(storage, 0.0)
        self._add_bytes(storage, more)
        self._gradients[storage] = storage.bytes + self._more.get(storage, 0.0)
        self._gradients_made[len(self._tasks) - 1] += self._gradients[storage] - before

    @contextmanager
    def seeing(self) -> Iterator[list[Storage]]:
        """The storages that tasks listed within this context build."""
        seen: list[Storage] = []
        self._seen.append(seen)
        try:
            yield seen
        finally:
            self._seen.pop()

    def count_times(self, storages: Iterable[Storage], times: int) -> None:
        """Counts each of these storages that is held so many times from here on."""
        self.abridged = True
        for storage in storages:
            if storage in self._holders:
                self._add_bytes(storage, (times - 1) * (storage.bytes + self._more.get(storage, 0.0)))

    def _add_bytes(self, storage: Storage, more: float) -> None:
        if more and self._tasks:
            self._more[storage] = self._more.get(storage, 0.0) + more
            self._tasks[-1].allocated += more

    def finished(self, held: float) -> TaskGraph:
        """All tasks, with the copies of identical iterations and passes, and the bytes held before and after them.
        Raises NotAlikeError if iterations or passes that are to be copied differ.
        """
        every = unfolded(self._tasks, self._marks, self._freed) if self._marks else self._tasks
        if self._copies:
            numbers = {id(task): number for number, task in enumerate(every)}
            starts = [numbers[id(self._tasks[start])] for start, _ in self._passes]
            every = self._last_but_one(starts).with_copies(every)
        return TaskGraph(tuple(every), held)

    def most(self, held: float) -> HeldMost:
        """The peak memory, given the bytes `held` before and after all tasks. Computed as in `TaskGraph.peak`."""
        now, gradients, found = held, 0.0, HeldMost(held, 0.0, "")
        for number, task in enumerate(self._tasks):
            now, gradients = now + task.allocated, gradients + self._gradients_made.get(number, 0.0)
            if now > found.bytes:
                found = HeldMost(now, gradients, f"{task.name} of {task.place}" if task.place else task.name)
            now, gradients = now - task.freed, gradients - self._gradients_freed.get(number, 0.0)
        return found
