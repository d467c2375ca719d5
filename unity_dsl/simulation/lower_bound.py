"""Times that no order of a step's tasks can beat in the simulation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .hardware import Hardware
from .task import COMPUTE, TaskGraph
from .timeline import HOST


@dataclass(frozen=True)
class LowerBound:
    """Seconds of the busiest channel or host of a device (`work`), of the longest chain of tasks that wait for each
    other, each alone (`path`), and of the busiest link of a device (`link`).
    """

    work: float
    path: float
    link: float

    @property
    def seconds(self) -> float:
        return max(self.work, self.path, self.link)


def lower_bound(graph: TaskGraph, hardware: Hardware) -> LowerBound:
    """What holds for the tasks in any order: resources must do their work, and tasks wait for those in `after`."""
    work: defaultdict[tuple[int, str], float] = defaultdict(float)
    link: defaultdict[tuple[int, int], float] = defaultdict(float)
    ends: list[float] = []
    for task in graph.tasks:
        launch = task.launches * hardware.launch_seconds
        traffic = 0.0
        for part in task.traffic:
            link[task.device, part.level] += part.seconds
            traffic = max(traffic, part.seconds)
        seconds, begin = max(task.seconds, traffic), 0.0
        if not hardware.host_computes:
            work[task.device, HOST] += launch
            begin = launch
        elif task.channel == COMPUTE:
            seconds += launch
        else:
            work[task.device, COMPUTE] += launch
            begin = launch
        work[task.device, task.channel] += seconds
        for other in task.after:
            if ends[other] > begin:
                begin = ends[other]
        ends.append(begin + seconds)
    return LowerBound(max(work.values(), default=0.0), max(ends, default=0.0), max(link.values(), default=0.0))
