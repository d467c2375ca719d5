"""Lists the tasks of a step in the order in which the program issues them, and counts who holds each storage."""

from __future__ import annotations

from collections.abc import Iterable

from ..index.lowering.local_tensor import Storage
from .task import COMPUTE, Phase, Purpose, Task, TaskGraph, Traffic


class TaskList:
    """Tasks so far. A storage is there from the task that builds it until the last holder drops it; what nobody holds
    when its task is `settled` lives while that runs. Kernels run in order: each waits for what kernels before it wait
    for. A task reads what the last task before it `builds` or writes `into`, of each storage that it `reads`.
    """

    def __init__(self) -> None:
        self.phase = Phase.FORWARD
        self._tasks: list[Task] = []
        self._holders: dict[Storage, int] = {}
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
        """Communication in a group, behind the kernels so far, and beside later ones until one waits for it."""
        after = (*([self._latest] if self._latest >= 0 else []), *self._waited)
        task = Task(
            name, place, self.phase, seconds, after, channel, traffic=traffic, sent=sent, limit=limit, purpose=purpose
        )
        return self._add(task, builds, reads, into)

    def wait(self, task: int) -> None:
        """Kernels from here on run behind that task."""
        self._waited.append(task)

    def _add(self, task: Task, builds: Iterable[Storage], reads: Iterable[Storage], into: Iterable[Storage]) -> int:
        number, built, written = len(self._tasks), list(builds), self._written
        task.reads = tuple({written[storage]: None for storage in reads if storage in written})
        task.allocated = float(sum(storage.bytes for storage in built))
        written |= dict.fromkeys((*built, *into), number)
        self._tasks.append(task)
        return number

    # ------------------------------------------------------------------------------------------ memory

    def hold(self, storages: Iterable[Storage]) -> None:
        holders = self._holders
        for storage in storages:
            holders[storage] = holders.get(storage, 0) + 1

    def drop(self, storages: Iterable[Storage]) -> None:
        """One holder less each. The last kernel so far ends before a storage that nobody holds is freed."""
        for storage in storages:
            self.release(storage)
            if storage not in self._holders:
                self.free(storage)

    def release(self, storage: Storage) -> None:
        """One holder less of what has another soon: it is not freed."""
        self._holders[storage] -= 1
        if self._holders[storage] == 0:
            del self._holders[storage]

    def holders(self, storage: Storage) -> int:
        return self._holders.get(storage, 0)

    def settle(self, built: Iterable[Storage]) -> None:
        """Free what the last task built and nobody holds."""
        for storage in built:
            if storage not in self._holders:
                self.free(storage)

    def free(self, storage: Storage) -> None:
        if self._tasks:
            self._tasks[-1].freed += storage.bytes

    def finished(self, held: float) -> TaskGraph:
        """All tasks, and the bytes that are there before and after them."""
        return TaskGraph(tuple(self._tasks), held)
