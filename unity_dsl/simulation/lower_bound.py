"""Times that no order of a step's tasks can beat in the simulation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from math import inf

import numpy as np
import numpy.typing as npt

from .hardware import Hardware
from .task import COMPUTE, Task, TaskGraph
from .timeline import HOST

LARGEST_CLOSURE = 20_000
"""Maximum number of tasks for which the transitive closure of their order is computed: it takes
their square in bits.
"""
CHUNK = 256
FEW = 400
"""Maximum number of tasks for which schedules of everything before and after each task are computed. This takes their
number squared, times what a task reads.
"""


@dataclass(frozen=True)
class LowerBound:
    """Lower bounds in seconds. `work` is for a channel or host of a device whose tasks run one at a time, each after
    what it needs and before what needs it. `path` is the longest chain of tasks that need each other. `link` is the
    time of the busiest link of a device.
    """

    work: float
    path: float
    link: float

    @property
    def seconds(self) -> float:
        return max(self.work, self.path, self.link)


@dataclass(frozen=True)
class _Job:
    """A job of so many `seconds` on a channel. It starts at `head` at the earliest, and the step ends at least `tail`
    after it.
    """

    head: float
    seconds: float
    tail: float


def lower_bound(graph: TaskGraph, hardware: Hardware) -> LowerBound:
    """Lower bounds for any order in which each task comes after those that it waits for or reads. For each channel and
    host, the bound is the shortest schedule in which jobs may be interrupted (Jackson's preemptive schedule, the bound
    of Carlier, The one-machine sequencing problem, 1982). The other tasks determine the heads and tails of its jobs.
    """
    tasks = graph.tasks
    needs = [(*task.after, *task.reads) for task in tasks]
    needed: list[list[int]] = [[] for _ in tasks]
    for number, others in enumerate(needs):
        for other in others:
            needed[other].append(number)
    launches = [0.0 if _is_launched_with(task, hardware) else _launch(task, hardware) for task in tasks]
    seconds = [_seconds(task, hardware) for task in tasks]
    head, tail = _before_and_behind(tasks, needs, needed, launches, seconds, hardware)
    if len(tasks) <= FEW:
        head = _scheduled(tasks, range(len(tasks)), needs, seconds, head)
        tail = _scheduled(tasks, range(len(tasks) - 1, -1, -1), needed, seconds, tail)
    for number, others in enumerate(needs):
        head[number] = max(head[number], *(head[other] + seconds[other] for other in others), 0.0)
    for number in range(len(tasks) - 1, -1, -1):
        tail[number] = max(tail[number], *(seconds[other] + tail[other] for other in needed[number]), 0.0)
    jobs: defaultdict[tuple[int, str], list[_Job]] = defaultdict(list)
    link: defaultdict[tuple[int, int], float] = defaultdict(float)
    for number, task in enumerate(tasks):
        first, last = float(head[number]), float(tail[number])
        jobs[task.device, task.channel].append(_Job(first, seconds[number], last))
        if launches[number]:
            host = COMPUTE if hardware.host_computes else HOST
            jobs[task.device, host].append(_Job(0.0, launches[number], seconds[number] + last))
        for part in task.traffic:
            link[task.device, part.level] += part.seconds
    path = max(_ends(needs, launches, seconds), default=0.0)
    return LowerBound(max(map(_preemptive_schedule, jobs.values()), default=0.0), path, max(link.values(), default=0.0))


def _ends(needs: Sequence[Sequence[int]], launches: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """The end of each task if it waited only for its own launch and the tasks that it needs."""
    ends: list[float] = []
    for others, launch, own in zip(needs, launches, seconds, strict=True):
        ends.append(max(launch, *(ends[other] for other in others), 0.0) + own)
    return ends


def _launch(task: Task, hardware: Hardware) -> float:
    return task.launches * hardware.launch_seconds


def _is_launched_with(task: Task, hardware: Hardware) -> bool:
    """Whether launching a task is part of its own time, as for kernels on a CPU."""
    return hardware.host_computes and task.channel == COMPUTE


def _seconds(task: Task, hardware: Hardware) -> float:
    """The time of a task that has all resources to itself."""
    alone = max(task.seconds, max((part.seconds for part in task.traffic), default=0.0))
    return alone + (_launch(task, hardware) if _is_launched_with(task, hardware) else 0.0)


def _before_and_behind(
    tasks: Sequence[Task],
    needs: Sequence[Sequence[int]],
    needed: Sequence[Sequence[int]],
    launches: Sequence[float],
    seconds: Sequence[float],
    hardware: Hardware,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Minimum times before and after each task. The first is what a host or the kernels of a device take for tasks that
    must precede it, its own launch included. The second is what the kernels of a device take for tasks that must follow
    it. With too many tasks, only its own launch is counted.
    """
    count, place = len(tasks), np.array([task.device for task in tasks], dtype=np.int64)
    if not 0 < count <= LARGEST_CLOSURE:
        return np.array(launches), np.zeros(count)
    everyone, devices = np.arange(count), 1 + int(place.max())
    kernels, hosts = np.zeros((count, devices)), np.zeros((count, devices))
    kernels[everyone, place] = np.where([task.channel == COMPUTE for task in tasks], seconds, 0.0)
    hosts[everyone, place] = launches
    if hardware.host_computes:
        hosts += kernels
    before = _sums_of_closure(range(count), needs, np.hstack([hosts, kernels]))
    before[everyone, place] += launches
    behind = _sums_of_closure(range(count - 1, -1, -1), needed, kernels)
    return before.max(axis=1), behind.max(axis=1)


def _scheduled(
    tasks: Sequence[Task],
    order: Sequence[int],
    edges: Sequence[Sequence[int]],
    seconds: Sequence[float],
    least: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """For each task, a lower bound on the time when all tasks that its edges lead to can be done, and no less than
    `least`. For each channel it is the shortest preemptive schedule, between the bounds found for its tasks and the
    longest paths from them to this task. In `order`, edges lead to earlier tasks.
    """
    found, reached = least.copy(), [set[int]() for _ in tasks]
    backwards = order[0] < order[-1] if order else True
    for number in order:
        reached[number] = {*edges[number]}.union(*(reached[other] for other in edges[number]))
        ways = dict.fromkeys(edges[number], 0.0)
        for other in sorted(reached[number], reverse=backwards):
            for further in edges[other]:
                ways[further] = max(ways.get(further, 0.0), ways[other] + seconds[other])
        channels: defaultdict[tuple[int, str], list[_Job]] = defaultdict(list)
        for other, way in ways.items():
            task = tasks[other]
            channels[task.device, task.channel].append(_Job(float(found[other]), seconds[other], way))
        found[number] = max([float(found[number]), *map(_preemptive_schedule, channels.values())])
    return found


def _sums_of_closure(
    order: Iterable[int], edges: Sequence[Sequence[int]], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """For each vertex, the sums of the weights [vertices, kinds] of all vertices that its edges lead to, directly or
    not. In `order`, edges lead to earlier vertices.
    """
    count, reached = len(weights), [0] * len(weights)
    width, found = (count + 7) // 8, np.zeros_like(weights)
    chunk: list[int] = []

    def add() -> None:
        rows = np.frombuffer(b"".join(reached[i].to_bytes(width, "little") for i in chunk), dtype=np.uint8)
        bits = np.unpackbits(rows.reshape(len(chunk), width), axis=1, count=count, bitorder="little")
        found[chunk] = bits.astype(np.float64) @ weights
        chunk.clear()

    for vertex in order:
        closure = 0
        for other in edges[vertex]:
            closure |= reached[other] | 1 << other
        reached[vertex] = closure
        chunk.append(vertex)
        if len(chunk) == CHUNK:
            add()
    if chunk:
        add()
    return found


def _preemptive_schedule(jobs: Iterable[_Job]) -> float:
    """The end of the last tail if, among jobs whose heads are over, the one with the longest tail always runs."""
    coming = sorted(jobs, key=lambda job: -job.head)
    ready: list[tuple[float, float]] = []
    now, end = 0.0, 0.0
    while coming or ready:
        if not ready:
            now = max(now, coming[-1].head)
        while coming and coming[-1].head <= now:
            job = coming.pop()
            heappush(ready, (-job.tail, job.seconds))
        tail, left = ready[0]
        following = coming[-1].head if coming else inf
        if now + left <= following:
            heappop(ready)
            now += left
            end = max(end, now - tail)
        else:
            heapreplace(ready, (tail, left - (following - now)))
            now = following
    return end
