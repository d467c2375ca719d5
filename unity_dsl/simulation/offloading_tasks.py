"""The tasks of activation offloading: copies to the host's memory in the forward pass, and back in the backward pass.

As the emitted HostMemory does it: what an operator saves is copied when it has run, and leaves the device when the next
iteration has ended; the backward pass of an iteration fetches what that of the iteration before it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..index.lowering.local_tensor import Storage
from ..machine.machine import Machine
from .local_tensors import Cotangents, Recorded
from .task import Purpose
from .task_list import TaskList

LEAST_BYTES = {"cpu": 0, "cuda": 2**20}
"""Smaller tensors stay on the device: to launch two copies takes longer than they are worth."""
THERE, BACK = "to host", "from host"
"""The channels of copies: a link works in both directions at once."""


@dataclass(eq=False)
class _Moved:
    """A storage that is in the host's memory: how many records are to read it, and the copy that has fetched it."""

    storage: Storage
    readers: int = 0
    task: int | None = None


@dataclass(eq=False)
class _Block:
    """What an iteration saves, but for what `stays`; the iteration `before` it comes next in the backward pass."""

    stays: Collection[Storage]
    before: _Block | None
    moved: dict[Storage, _Moved] = field(default_factory=dict)
    last: int | None = None  # the latest copy to the host


@dataclass
class HostMemory:
    """Moves what is saved, as long as a block is `open`. What the last one that has ended saved is on the device still,
    until it has `left`; in the backward pass that of the block which it has come to is `back`.
    """

    tasks: TaskList
    machine: Machine
    open: _Block | None = None
    left: _Block | None = None
    back: _Block | None = None

    @contextmanager
    def keeping(self, stays: Iterable[Storage]) -> Iterator[None]:
        """Within it an iteration runs whose records keep what they save in the host's memory, but for what `stays`."""
        before, self.open = self.left, _Block(frozenset(stays), self.left)
        try:
            yield
        finally:
            block, self.open = self.open, None
            self._release(before)
            self.left = block

    def finish(self) -> None:
        """The loop has ended: all is in the host's memory."""
        self._release(self.left)
        self.left = None

    def packed(self, record: Recorded, place: str) -> Recorded:
        """A record that saves nothing on the device of what is moved."""
        block, tasks = self.open, self.tasks
        if block is None:
            return record
        least = LEAST_BYTES[self.machine.device]
        out = [one for one in dict.fromkeys(record.saved) if one.bytes > least and one not in block.stays]
        if not out:
            return record
        for storage in out:
            if storage not in block.moved:
                block.moved[storage] = _Moved(storage)
                tasks.hold([storage])
                block.last = self._copy("offload", place, storage.bytes, THERE, (), [storage])
            block.moved[storage].readers += 1
        tasks.drop(one for one in record.saved if one in block.moved)

        def run(outgoing: Cotangents) -> Cotangents:
            if self.back is not block:
                self.end_backward()
                self.back = block
            self._fetch(block, place)
            if block.before is not None:
                self._fetch(block.before, place)
            moved = [block.moved[storage] for storage in out]
            for one in moved:
                if one.task is not None:
                    tasks.wait(one.task)
            found = record.run(outgoing)
            for one in moved:
                one.readers -= 1
                if not one.readers:
                    self._drop(one)
            return found

        return replace(record, saved=tuple(one for one in record.saved if one not in block.moved), run=run)

    def end_backward(self) -> None:
        """The backward pass is through with a block: what had no gradient was brought back as well."""
        for one in self.back.moved.values() if self.back is not None else ():
            self._drop(one)
        self.back = None

    def _drop(self, one: _Moved) -> None:
        if one.task is not None:
            self.tasks.drop([one.storage])
            one.task, one.readers = None, 0

    def _release(self, block: _Block | None) -> None:
        """What was copied leaves the device, when the copies have ended."""
        if block is not None and block.last is not None:
            self.tasks.wait(block.last)
            self.tasks.drop(block.moved)
            block.last = None

    def _fetch(self, block: _Block, place: str) -> None:
        """Begins to bring back all of a block."""
        self._release(block)
        for one in block.moved.values():
            if one.task is None and one.readers:
                builds = [] if self.tasks.holders(one.storage) else [one.storage]
                one.task = self._copy("fetch", place, one.storage.bytes, BACK, builds, ())
                self.tasks.hold([one.storage])

    def _copy(
        self, name: str, place: str, count: int, channel: str, builds: Iterable[Storage], reads: Iterable[Storage]
    ) -> int:
        link = self.machine.collectives.host
        assert link is not None, "a plan offloads where there is a link to the host"
        seconds = link.latency + count / link.bandwidth
        return self.tasks.collective(
            name, place, seconds, channel, (), 0.0, builds, "link", Purpose.VALUES, reads=reads
        )
