"""The tasks of activation offloading: copies to the host's memory in the forward pass, and back in the backward pass.

It follows the emitted HostMemory. Saved tensors are copied when their operator has run, and leave the device when the
next iteration has ended. The backward pass of an iteration prefetches the tensors that the iteration before it needs.
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
"""Tensors stay on the device if they are not larger: launching two copies takes longer than they are worth."""
THERE, BACK = "to host", "from host"
"""The channels of copies in each direction: a link works in both at once."""


@dataclass(eq=False)
class _Moved:
    """A storage in the host's memory: the number of records that still read it, and the copy that has fetched it."""

    storage: Storage
    readers: int = 0
    task: int | None = None


@dataclass(eq=False)
class _Block:
    """The tensors that an iteration saves, except those that stay on the device (`stays`). The iteration `before` it
    comes next in the backward pass.
    """

    stays: Collection[Storage]
    before: _Block | None
    moved: dict[Storage, _Moved] = field(default_factory=dict)
    last: int | None = None  # the latest copy to the host


@dataclass
class HostMemory:
    """Offloads what is saved as long as a block is `open`. `left` is the last block that has ended: its tensors are
    still on the device. `back` is the block that the backward pass has reached.
    """

    tasks: TaskList
    machine: Machine
    open: _Block | None = None
    left: _Block | None = None
    back: _Block | None = None

    @contextmanager
    def keeping(self, stays: Iterable[Storage]) -> Iterator[None]:
        """Within it runs an iteration whose records keep what they save in the host's memory, except what `stays`."""
        before, self.open = self.left, _Block(frozenset(stays), self.left)
        try:
            yield
        finally:
            block, self.open = self.open, None
            self._release(before)
            self.left = block

    def finish(self) -> None:
        """Ends the loop: everything is in the host's memory."""
        self._release(self.left)
        self.left = None

    def packed(self, record: Recorded, place: str) -> Recorded:
        """A record that does not hold its offloaded tensors on the device."""
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
        """Ends the backward pass of a block. Tensors that were fetched for records without a gradient are dropped as
        well.
        """
        for one in self.back.moved.values() if self.back is not None else ():
            self._drop(one)
        self.back = None

    def _drop(self, one: _Moved) -> None:
        if one.task is not None:
            self.tasks.drop([one.storage])
            one.task, one.readers = None, 0

    def _release(self, block: _Block | None) -> None:
        """Removes copied tensors from the device, once the copies have ended."""
        if block is not None and block.last is not None:
            self.tasks.wait(block.last)
            self.tasks.drop(block.moved)
            block.last = None

    def _fetch(self, block: _Block, place: str) -> None:
        """Starts to fetch all tensors of a block."""
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
