"""What a training step does on each device, as tasks: kernels on its stream, collectives on their groups' channels."""

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
    """What a collective is for: values and weights that kernels wait for, gradients in a bucket, weights gathered
    ahead of that.
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
    """What a task sends through the links of one level of the interconnect: the seconds that it takes of a link that
    nothing else uses. Tasks that use a level at the same time share it.
    """

    level: int
    seconds: float


@dataclass(slots=True)
class Task:
    """Work of one device, which nothing changes once all are listed. Tasks of the same device and channel run one after
    the other, in the order in which they are listed; each starts when those in `after` are done as well. `reads` are
    tasks that made what it reads: they come before it in any order of a channel's tasks.

    `name` is what a reader sees, `place` the path of the operator or tensor in the model that it is a part of.
    A collective's name is its kind. `seconds` is how long it takes alone, without launches; in the last of these it
    waits for the links, which it uses at once, one entry of `traffic` a level. The host issues `launches` kernels for
    it before it can start. `sent` are bytes that the device sends. The device's memory has `allocated` bytes more from
    its start, and `freed` bytes less from its end. `limit` says what its time is a matter of, if that is known.
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
"""What a task does: all of it but its place and what it refers to."""
_fields_of = attrgetter(*(one.name for one in fields(Task)))


def copied(task: Task) -> Task:
    """A task like another, which can be given another place and other references."""
    return Task(*_fields_of(task))


@dataclass(frozen=True)
class Peak:
    """The most bytes that a device holds, and the task that runs then, None where that is before all."""

    bytes: float
    task: Task | None


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of a step, each after those that it waits for. Where all devices do the same, those of device 0 stand
    for all. `held` are the bytes that a device's memory has before and after the step, `held_by` those of each device
    where they differ.
    """

    tasks: Sequence[Task]
    held: float = 0.0
    held_by: Sequence[float] = ()

    def held_before(self, device: int) -> float:
        """The bytes that are in a device's memory before and after the step."""
        return self.held_by[device] if self.held_by else self.held

    @property
    def devices(self) -> int:
        return 1 + max((task.device for task in self.tasks), default=0)

    def peak(self) -> Peak:
        """The most that a device holds, where tasks get their memory in the order in which they are listed, as torch's
        allocators give it: when the host comes to a task, not when the task runs.
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
