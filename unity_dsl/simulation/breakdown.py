"""The time of a simulated step by operator and collective. A loop's iterations are counted together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .task import COMPUTE, Phase, Task
from .timeline import Seconds, Timeline


@dataclass(frozen=True)
class Spent:
    """Tasks of one name at one place of the model on device 0: `layer.*.ff.up` is the place in all iterations.

    Their running time in `seconds` is given by phase. `exposed` are the seconds of collectives in which no kernel runs;
    if two run at once, the seconds of both count. `sent` are bytes. `limit` says what bounds most of the time, `first`
    is the number of the earliest task.
    """

    name: str
    place: str
    collective: bool
    tasks: int
    launches: int
    forward: float
    backward: float
    update: float
    exposed: float
    sent: float
    limit: str
    first: int

    @property
    def seconds(self) -> float:
        return self.forward + self.backward + self.update

    @property
    def weight(self) -> float:
        """Seconds by which it may delay the step: all seconds of kernels, only the exposed ones of collectives."""
        return self.exposed if self.collective else self.seconds


def break_down(timeline: Timeline) -> list[Spent]:
    """Time by name and place, starting with those that delay the step most."""
    tasks = timeline.graph.tasks
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for number, task in enumerate(tasks):
        if task.device == 0:
            key = task.name.removesuffix(" backward"), without_iterations(task.place), task.channel != COMPUTE
            groups.setdefault(key, []).append(number)
    covered = KernelTime(timeline)
    found = [_spent(*key, numbers, tasks, timeline, covered) for key, numbers in groups.items()]
    return sorted(found, key=lambda spent: (-spent.weight, spent.first))


def without_iterations(place: str) -> str:
    """`layer.*.w` for `layer.7.w`."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", place.partition(" ")[0])


def _spent(
    name: str,
    place: str,
    collective: bool,
    numbers: Sequence[int],
    tasks: Sequence[Task],
    timeline: Timeline,
    covered: KernelTime,
) -> Spent:
    some = [tasks[number] for number in numbers]
    spans = (timeline.end[numbers] - timeline.start[numbers]).tolist()

    def of(phase: Phase) -> float:
        return sum((span for span, task in zip(spans, some, strict=True) if task.phase is phase), 0.0)

    limits: Counter[str] = Counter()
    for span, task in zip(spans, some, strict=True):
        limits[task.limit] += span
    exposed = covered.outside(timeline.start[numbers], timeline.end[numbers]) if collective else 0.0
    return Spent(
        name=name,
        place=place,
        collective=collective,
        tasks=len(some),
        launches=sum(task.launches for task in some),
        forward=of(Phase.FORWARD),
        backward=of(Phase.BACKWARD),
        update=of(Phase.UPDATE),
        exposed=exposed,
        sent=sum((task.sent for task in some), 0.0),
        limit=max(limits, key=lambda limit: limits[limit]),
        first=numbers[0],
    )


class KernelTime:
    """The times at which kernels of device 0 run, one after the other."""

    def __init__(self, timeline: Timeline) -> None:
        kernels = [i for i, t in enumerate(timeline.graph.tasks) if t.device == 0 and t.channel == COMPUTE]
        self.start, self.end = timeline.start[kernels], timeline.end[kernels]
        self.before = np.concatenate([[0.0], np.cumsum(self.end - self.start)])

    def outside(self, start: Seconds, end: Seconds) -> float:
        """Seconds of these intervals in which no kernel runs."""
        return float(((end - start) - (self._until(end) - self._until(start))).sum())

    def _until(self, times: Seconds) -> Seconds:
        """Seconds of kernels before each time."""
        if not len(self.start):
            return np.zeros(len(times))
        last = np.searchsorted(self.start, times, side="right") - 1
        within = np.minimum(times, self.end[last]) - self.start[last]
        return np.where(last < 0, 0.0, self.before[last] + np.maximum(within, 0.0))
