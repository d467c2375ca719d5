"""Lists the tasks of a step in the order in which the program issues them, and counts who holds each storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..index.lowering.local_tensor import Storage
from .task import COMPUTE, Phase, Purpose, Task, TaskGraph, Traffic


@dataclass(slots=True)
class _Draft:
    """A task whose memory is not settled yet."""

    name: str
    place: str
    phase: Phase
    seconds: float
    after: tuple[int, ...]
    channel: str
    launches: int
    traffic: tuple[Traffic, ...]
    sent: float
    limit: str
    purpose: Purpose
    reads: tuple[int, ...]
    allocated: float = 0.0
    freed: float = 0.0


class TaskList:
    """Tasks so far. A storage is there from the task that builds it until the last holder drops it; what nobody holds
    when its task is `settled` lives while that runs. Kernels run in order: each waits for what kernels before it wait
    for. A task reads what the last task before it `builds` or writes `into`, of each storage that it `reads`.
    """

    def __init__(self) -> None:
        self.phase = Phase.FORWARD
        self._drafts: list[_Draft] = []
        self._holders: Counter[Storage] = Counter()
        self._waited: list[int] = []
        self._latest = -1
        self._written: dict[Storage, int] = {}

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
        """Work on the device's own stream, behind all that was waited for."""
        after, self._waited = tuple(self._waited), []
        draft = _Draft(name, place, self.phase, seconds, after, COMPUTE, launches, (), 0.0, limit, Purpose.VALUES, ())
        self._latest = self._add(draft, builds, reads, into)
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
        """Communication in a group, behind the kernels so far, and beside later ones until one waits for it."""
        after = (*([self._latest] if self._latest >= 0 else []), *self._waited)
        draft = _Draft(name, place, self.phase, seconds, after, channel, 1, traffic, sent, limit, purpose, ())
        return self._add(draft, builds, reads, into)

    def wait(self, task: int) -> None:
        """Kernels from here on run behind that task."""
        self._waited.append(task)

    def _add(self, draft: _Draft, builds: Iterable[Storage], reads: Iterable[Storage], into: Iterable[Storage]) -> int:
        number, built, written = len(self._drafts), list(builds), self._written
        draft.reads = tuple({written[storage]: None for storage in reads if storage in written})
        draft.allocated = float(sum(storage.bytes for storage in built))
        written |= dict.fromkeys((*built, *into), number)
        self._drafts.append(draft)
        return number

    # ------------------------------------------------------------------------------------------ memory

    def hold(self, storages: Iterable[Storage]) -> None:
        for storage in storages:
            self._holders[storage] += 1

    def drop(self, storages: Iterable[Storage]) -> None:
        """One holder less each. The last kernel so far ends before a storage that nobody holds is freed."""
        for storage in storages:
            self._holders[storage] -= 1
            if self._holders[storage] == 0:
                del self._holders[storage]
                self.free(storage)

    def release(self, storage: Storage) -> None:
        """One holder less of what has another soon: it is not freed."""
        self._holders[storage] -= 1
        if self._holders[storage] == 0:
            del self._holders[storage]

    def holders(self, storage: Storage) -> int:
        return self._holders[storage]

    def settle(self, built: Iterable[Storage]) -> None:
        """Free what the last task built and nobody holds."""
        for storage in built:
            if storage not in self._holders:
                self.free(storage)

    def free(self, storage: Storage) -> None:
        if self._drafts:
            self._drafts[-1].freed += storage.bytes

    def finished(self, held: float) -> TaskGraph:
        """All tasks, and the bytes that are there before and after them."""
        return TaskGraph(tuple(map(_task, self._drafts)), held)


def _task(draft: _Draft) -> Task:
    return Task(
        name=draft.name,
        place=draft.place,
        phase=draft.phase,
        seconds=draft.seconds,
        after=draft.after,
        channel=draft.channel,
        launches=draft.launches,
        traffic=draft.traffic,
        sent=draft.sent,
        allocated=draft.allocated,
        freed=draft.freed,
        limit=draft.limit,
        purpose=draft.purpose,
        reads=draft.reads,
    )
