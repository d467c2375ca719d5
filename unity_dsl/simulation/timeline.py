"""When each task of a step ran, and the results: its time, exposed communication, memory over time,
the critical path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .hardware import Hardware
from .task import COMPUTE, OPTIMIZER, TaskGraph

Seconds = npt.NDArray[np.float64]
"""Shape [tasks]."""

HOST = "host"
"""The channel of launches, in addition to those of tasks."""


@dataclass(frozen=True, eq=False)
class MemoryUse:
    """A device's memory over time: it holds `held[i]` bytes from `times[i]` seconds on. Entries with the same time
    happened in this order. The peak of `peak` bytes is first reached at `peak_time`; the tasks `at_peak` run then.
    """

    times: Seconds
    held: npt.NDArray[np.float64]
    peak: float
    peak_time: float
    at_peak: tuple[int, ...]


@dataclass(frozen=True)
class StepTime:
    """Seconds of a simulated step of a device: in kernels other than updates, in kernels that update parameters, in
    exposed communication, and idle, mostly waiting for the host to launch kernels.
    """

    compute: float
    update: float
    exposed: float
    idle: float


@dataclass(frozen=True, eq=False)
class Timeline:
    """A simulated step. Task i runs from `start[i]` to `end[i]`, and was issued from `launch[i]` to `issued[i]`.

    `cause[i]` is the task whose end let it start, -1 if that was its launch. On a CPU a kernel's launch is part of the
    kernel and takes no time of its own.
    """

    graph: TaskGraph
    hardware: Hardware
    start: Seconds
    end: Seconds
    launch: Seconds
    issued: Seconds
    cause: npt.NDArray[np.int64]

    @cached_property
    def seconds(self) -> float:
        """The time of the step: the end of its last task."""
        return float(self.end.max(initial=0.0))

    @cached_property
    def busy(self) -> Mapping[tuple[int, str], float]:
        """Seconds in which each channel of each device runs a task, and in which `HOST` issues launches."""
        found: defaultdict[tuple[int, str], float] = defaultdict(float)
        spans, launches = (self.end - self.start).tolist(), (self.issued - self.launch).tolist()
        for task, span, launch in zip(self.graph.tasks, spans, launches, strict=True):
            found[task.device, task.channel] += span
            found[task.device, HOST] += launch
        return dict(found)

    @cached_property
    def sent(self) -> Mapping[str, float]:
        """Bytes that collectives of each name send, per device on average."""
        found: defaultdict[str, float] = defaultdict(float)
        devices = self.graph.devices
        for task in self.graph.tasks:
            if task.sent:
                found[task.name] += task.sent / devices
        return dict(found)

    def exposed(self, device: int = 0) -> float:
        """Exposed communication of a device: seconds in which a collective runs on it and no kernel does."""
        here = self._tasks_of(device)
        kernels = here[self._is_kernel[here]]
        return _covered(self.start[here], self.end[here]) - _covered(self.start[kernels], self.end[kernels])

    def spent(self, device: int = 0) -> StepTime:
        """How a device spends the time of the step."""
        here = self._tasks_of(device)
        kernels = [i for i in here.tolist() if self._is_kernel[i]]
        update = [i for i in kernels if self.graph.tasks[i].name == OPTIMIZER]
        seconds = [float((self.end[some] - self.start[some]).sum()) for some in (kernels, update)]
        exposed = self.exposed(device)
        return StepTime(seconds[0] - seconds[1], seconds[1], exposed, max(0.0, self.seconds - seconds[0] - exposed))

    def most_memory(self) -> MemoryUse:
        """The memory of the device with the highest peak."""
        return max(map(self.memory, range(self.graph.devices)), key=lambda use: use.peak)

    def memory(self, device: int = 0) -> MemoryUse:
        """A device's memory over time. At equal times, tasks listed earlier come first: memory that one frees at its
        end is available to the next.
        """
        here = self._tasks_of(device)
        changes = np.array([(t.allocated, -t.freed) for t in map(self.graph.tasks.__getitem__, here)]).reshape(-1)
        times = np.stack([self.start[here], self.end[here]], axis=1).reshape(-1)
        order = np.argsort(times, kind="stable")
        times = np.concatenate([[0.0], times[order]])
        held = np.cumsum(np.concatenate([[self.graph.held_before(device)], changes[order]]))
        top = int(held.argmax())
        moment = times[top]
        runs = (self.start[here] <= moment) & (self.end[here] > moment)
        if top:
            runs[order[top - 1] // 2] = True
        return MemoryUse(times, held, float(held[top]), float(moment), tuple(here[runs].tolist()))

    @cached_property
    def critical_path(self) -> tuple[int, ...]:
        """A chain of tasks that each let the next one start, up to the last task to end. The first waited only for its
        launch.
        """
        path: list[int] = []
        task = int(self.end.argmax()) if len(self.end) else -1
        while task >= 0:
            path.append(task)
            task = int(self.cause[task])
        return tuple(reversed(path))

    @cached_property
    def _is_kernel(self) -> npt.NDArray[np.bool_]:
        return np.array([task.channel == COMPUTE for task in self.graph.tasks], dtype=bool)

    def _tasks_of(self, device: int) -> npt.NDArray[np.int64]:
        devices = np.array([task.device for task in self.graph.tasks], dtype=np.int64)
        return np.flatnonzero(devices == device)


def _covered(start: Seconds, end: Seconds) -> float:
    """The length of the union of intervals."""
    if not len(start):
        return 0.0
    order = np.argsort(start)
    start, reached = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - reached[:-1], 0.0)
    return float(reached[-1] - start[0] - gaps.sum())
