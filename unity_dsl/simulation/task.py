"""The tasks of a training step: kernels on a device's compute stream, collectives on the channels of their groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter


class Phase(Enum):
    """Part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class Purpose(Enum):
    """The use of a collective. `VALUES` are values and weights that kernels wait for at once, `GRADIENTS` are gradients
    in a bucket, `WEIGHTS` are prefetched weights.
    """

    VALUES = "values"
    GRADIENTS = "gradients"
    WEIGHTS = "weights"


OPTIMIZER = "optimizer"
"""The kernel that updates all parameters."""
COMPUTE = "compute"
"""The channel of kernels."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The load that a task puts on the links of one level of the interconnect. `seconds` is its duration on a link that
    nothing else uses. Tasks that use a level at the same time share the link.
    """

    level: int
    seconds: float


@dataclass(slots=True)
class Task:
    """Work of one device. It does not change once all tasks are listed. Tasks of one device and channel run one after
    the other, in the order in which they are listed. Each also waits for the tasks in `after`. `reads` are the tasks
    that produced its inputs: they precede it in any order of a channel's tasks.

    `name` is shown to readers, `place` is the path in the model of its operator or tensor. A collective's name is its
    kind. `seconds` is how long it takes alone, without launches. The transfer is the last part of this time: the task
    then uses all its links at once, one per entry of `traffic`. The host issues `launches` kernels before the task can
    start. `sent` is the number of bytes that the device sends. The device's memory use grows by `allocated` bytes at
    the start and shrinks by `freed` bytes at the end. `limit` says what bounds its time, if that is known.
    """

    name: str
    place: str
    phase: Phase
    seconds: float
    after: tuple[int, ...] = ()
    channel: str = COMPUTE
    device: int = 0
    launches: int = 1
    traffic: tuple[Traffic, ...] = ()
    sent: float = 0.0
    allocated: float = 0.0
    freed: float = 0.0
    limit: str = ""
    purpose: Purpose = Purpose.VALUES
    reads: tuple[int, ...] = ()


work_of = attrgetter(*(one.name for one in fields(Task) if one.name not in ("place", "after", "reads")))
"""The fields that say what a task does: all but its place and its references to other tasks."""
_fields_of = attrgetter(*(one.name for one in fields(Task)))


def copied(task: Task) -> Task:
    """A copy of a task, which can be given another place and other references."""
    return Task(*_fields_of(task))


@dataclass(frozen=True)
class Peak:
    """A device's peak memory in bytes, and the task that runs then; None if the peak is before all tasks."""

    bytes: float
    task: Task | None


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of a step, each listed after those that it waits for. If all devices do the same, the tasks of device 0
    represent all. `held` is the memory of a device in bytes before and after the step. `held_by` gives it per device
    where devices differ.
    """

    tasks: Sequence[Task]
    held: float = 0.0
    held_by: Sequence[float] = ()

    def held_before(self, device: int) -> float:
        """The memory of a device in bytes before and after the step."""
        return self.held_by[device] if self.held_by else self.held

    @property
    def devices(self) -> int:
        return 1 + max((task.device for task in self.tasks), default=0)

    def peak(self) -> Peak:
        """The highest peak memory of any device. Memory is allocated in the order in which tasks are listed, as by
        torch's allocators: when the host issues a task, not when the task runs.
        """
        return max((self._peak_of(device) for device in range(self.devices)), key=lambda peak: peak.bytes)

    def _peak_of(self, device: int) -> Peak:
        now, found = self.held_before(device), Peak(self.held_before(device), None)
        for task in self.tasks:
            if task.device == device:
                now += task.allocated
                if now > found.bytes:
                    found = Peak(now, task)
                now -= task.freed
        return found
