"""Discrete-event simulation of a task graph: channels run their tasks in order, tasks share links in equal parts.

Channels and hosts are processes (generators) that run until they need a time that is not known yet. A kernel ends after
its own duration, so a channel computes the times of any number of kernels at once. Only shared resources need events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, nan

import numpy as np

from .hardware import Hardware
from .task import COMPUTE, Task, TaskGraph, Traffic
from .timeline import Timeline


def simulate(graph: TaskGraph, hardware: Hardware) -> Timeline:
    """Simulates all tasks of a step.

    A task starts when its channel has finished the tasks before it, those in `after` are done and the host has issued
    it. The part of its `seconds` in which no link is used (latency) comes first. Then it uses all links of its
    `traffic` at once. It shares each equally with the other tasks that use that level's link of its device. Raises
    ValueError if a task is listed before one that it waits for.
    """
    return _Simulation(graph, hardware).run()


Command = int | float | tuple["_Server", float]
"""A process waits for one of these: the end of task i, as i; its launch, as ~i; a time; or so many
seconds of service.
"""

Process = Iterator[Command]


@dataclass(slots=True, eq=False)
class _Server:
    """Serves all its customers at once, each at an equal part of its speed (processor sharing).

    `clock` is the virtual time: the seconds of service that each customer has received since the server was idle. A
    customer that comes at clock v for s seconds leaves at v + s, however many come and go (Parekh and Gallager 1993,
    section III). The customers are a heap ordered by that time. Only the event of the last `version` is valid.
    """

    speed: float = 1.0
    clock: float = 0.0
    time: float = 0.0
    customers: list[tuple[float, int, Process]] = field(default_factory=list)
    version: int = 0

    def advance(self, now: float) -> None:
        if self.customers:
            self.clock += (now - self.time) * self.speed / len(self.customers)
        else:
            self.clock = 0.0
        self.time = now

    def next_leave(self) -> float:
        """When the next customer leaves if nothing changes before; infinite if never."""
        if not self.customers:
            return inf
        left = (self.customers[0][0] - self.clock) * len(self.customers)
        if left <= 0:
            return self.time
        return self.time + left / self.speed if self.speed else inf


class _Simulation:
    """The state of one simulation. Times of ends and issues that are not known yet are None."""

    def __init__(self, graph: TaskGraph, hardware: Hardware) -> None:
        self.graph, self.hardware, self.tasks = graph, hardware, graph.tasks
        count = len(graph.tasks)
        self.start: list[float] = [nan] * count
        self.end: list[float | None] = [None] * count
        self.launch: list[float] = [0.0] * count
        self.issued: list[float | None] = [None] * count
        self.cause = [-1] * count
        self.launched_behind = [-1] * count
        self.now = 0.0
        self.serial = 0
        self.events: list[tuple[float, int, Process | _Server, int]] = []
        self.ready: list[Process] = []
        self.waiting: dict[int, list[Process]] = {}
        self.links: defaultdict[tuple[int, int], _Server] = defaultdict(_Server)
        self.compute: defaultdict[int, _Server] = defaultdict(_Server)
        self.running: defaultdict[int, int] = defaultdict(int)
        self.crossed: dict[int, int] = {}

    def run(self) -> Timeline:
        self.ready = self._processes()
        while self.ready or self.events:
            while self.ready:
                self._resume(self.ready.pop())
            if self.events:
                self.now, _, subject, version = heappop(self.events)
                if not isinstance(subject, _Server):
                    self.ready.append(subject)
                elif version == subject.version:
                    self._leave(subject)
        return Timeline(
            self.graph,
            self.hardware,
            start=np.array(self.start),
            end=np.array(self.end, dtype=float),
            launch=np.array(self.launch),
            issued=np.array(self.issued, dtype=float),
            cause=np.array(self.cause, dtype=np.int64),
        )

    def _processes(self) -> list[Process]:
        """A process for each channel of each device. On a CPU, the host's process runs the kernels as well."""
        host_computes, launch_seconds = self.hardware.host_computes, self.hardware.launch_seconds
        channels: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        free: defaultdict[int, float] = defaultdict(float)
        for i, task in enumerate(self.tasks):
            if task.after and max(task.after) >= i:
                raise ValueError(f"task {i}, `{task.name}`, is listed before one that it waits for")
            device = task.device
            channels[device, task.channel].append(i)
            if not host_computes:
                self.launch[i] = free[device]
                free[device] += task.launches * launch_seconds
                self.issued[i] = free[device]
            elif task.channel != COMPUTE:
                channels[device, COMPUTE].append(i)
        return [
            self._host_thread(members) if host_computes and channel == COMPUTE else self._channel(members)
            for (_, channel), members in channels.items()
        ]

    # ------------------------------------------------------------------------------------------ what processes do

    def _channel(self, members: Sequence[int]) -> Process:
        """Runs the tasks of a channel one after the other, each after its launch."""
        tasks, end, issued = self.tasks, self.end, self.issued
        free, last = 0.0, -1
        for i in members:
            task = tasks[i]
            if (begin := issued[i]) is None:
                yield ~i
                begin = issued[i]
            assert begin is not None
            cause = self.launched_behind[i]
            if free >= begin:
                begin, cause = free, last
            for other in task.after:
                if (done := end[other]) is None:
                    yield other
                    done = end[other]
                assert done is not None
                if done >= begin:
                    begin, cause = done, other
            self.start[i], self.cause[i] = begin, cause
            if task.channel != COMPUTE:
                yield from self._communicate(i, task, begin)
                free = self.now
            elif self.hardware.slowdown:
                yield from self._compute(task, task.seconds, begin)
                free = self.now
            else:
                free = begin + task.seconds
            last = i
            end[i] = free
            if i in self.waiting:
                self._wake(i)

    def _host_thread(self, members: Sequence[int]) -> Process:
        """The one thread of a CPU: runs kernels after the tasks that they wait for, and launches collectives."""
        tasks, end = self.tasks, self.end
        free, last = 0.0, -1
        for i in members:
            task = tasks[i]
            begin, cause = free, last
            seconds = task.launches * self.hardware.launch_seconds
            is_kernel = task.channel == COMPUTE
            if is_kernel:
                seconds += task.seconds
                for other in task.after:
                    if (done := end[other]) is None:
                        yield other
                        done = end[other]
                    assert done is not None
                    if done >= begin:
                        begin, cause = done, other
            self.launch[i] = begin
            if self.hardware.slowdown:
                yield from self._compute(task, seconds, begin)
                free = self.now
            else:
                free = begin + seconds
            if is_kernel:
                self.start[i], self.cause[i], self.issued[i], end[i] = begin, cause, begin, free
                last = i
                signal = i
            else:
                self.launched_behind[i], self.issued[i] = last, free
                signal = ~i
            if signal in self.waiting:
                self._wake(signal)

    def _compute(self, task: Task, seconds: float, begin: float) -> Process:
        """Kernel work, at the speed that collectives leave to the device."""
        if begin > self.now:
            yield begin
        yield self.compute[task.device], seconds

    def _communicate(self, i: int, task: Task, begin: float) -> Process:
        """Runs a collective: first its latency, then its links until the last one is done."""
        if self.hardware.slowdown:
            if begin > self.now:
                yield begin
            self._slow_down(task.device, 1)
        sending = max([part.seconds for part in task.traffic], default=0.0)
        yield begin + max(task.seconds - sending, 0.0)
        if len(task.traffic) == 1:
            yield self.links[task.device, task.traffic[0].level], sending
        elif task.traffic:
            self.crossed[i] = 0
            self.ready += [self._cross(i, task, part) for part in task.traffic]
            yield i
        if self.hardware.slowdown:
            self._slow_down(task.device, -1)

    def _cross(self, i: int, task: Task, part: Traffic) -> Process:
        """The part of a collective on one of several links. The last part to finish ends the collective."""
        yield self.links[task.device, part.level], part.seconds
        self.crossed[i] += 1
        if self.crossed[i] == len(task.traffic):
            self.end[i] = self.now
            self._wake(i)

    def _slow_down(self, device: int, more: int) -> None:
        """Changes the number of collectives that run on a device by `more`."""
        server = self.compute[device]
        server.advance(self.now)
        self.running[device] += more
        server.speed = 1.0 - self.hardware.slowdown if self.running[device] else 1.0
        self._schedule(server)

    # ------------------------------------------------------------------------------------------ events

    def _resume(self, process: Process) -> None:
        """Lets a process run until it waits for something."""
        command = next(process, None)
        if isinstance(command, int):
            self.waiting.setdefault(command, []).append(process)
        elif isinstance(command, float):
            self._push(command, process, 0)
        elif command is not None:
            server, seconds = command
            server.advance(self.now)
            self.serial += 1
            heappush(server.customers, (server.clock + seconds, self.serial, process))
            self._schedule(server)

    def _wake(self, signal: int) -> None:
        self.ready.extend(self.waiting.pop(signal))

    def _leave(self, server: _Server) -> None:
        server.advance(self.now)
        clock, _, process = heappop(server.customers)
        server.clock = clock
        self._schedule(server)
        self.ready.append(process)

    def _schedule(self, server: _Server) -> None:
        """Schedules the event of the next customer to leave, in place of the previous event."""
        server.version += 1
        leaves = server.next_leave()
        if leaves < inf:
            self._push(leaves, server, server.version)

    def _push(self, time: float, subject: Process | _Server, version: int) -> None:
        self.serial += 1
        heappush(self.events, (time, self.serial, subject, version))
