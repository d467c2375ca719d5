"""A simulation of task graphs in exact steps of time: what runs is looked for among all tasks, again after each step.

It shares nothing with the simulator but `Task`. Quadratic in tasks, and slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from unity_dsl.simulation.hardware import Hardware
from unity_dsl.simulation.task import COMPUTE, Task, TaskGraph

Resource = tuple[str, int, int]
"""Kind, device, level: kinds are "time", which is never short, "compute" and "link"."""


@dataclass
class Times:
    """When each task was issued, began and ended."""

    issued: dict[int, Fraction]
    start: dict[int, Fraction]
    end: dict[int, Fraction]


@dataclass
class _Activity:
    """A launch or a task, with what it still needs."""

    task: int
    is_launch: bool
    needs: list[tuple[Resource, Fraction]]


class ReferenceSimulator:
    def __init__(self, graph: TaskGraph, hardware: Hardware) -> None:
        self.tasks, self.hardware = graph.tasks, hardware
        self.devices = sorted({task.device for task in graph.tasks})
        self.to_issue = {d: [i for i, t in enumerate(self.tasks) if t.device == d] for d in self.devices}
        self.times = Times({}, {}, {})
        self.active: list[_Activity] = []
        self.now = Fraction(0)

    def run(self) -> Times:
        while len(self.times.end) < len(self.tasks):
            while self._finish() or self._issue() or self._begin():
                pass
            if self.active:
                self._pass_time()
        return self.times

    # What can happen now. Each says whether it did.

    def _finish(self) -> bool:
        for activity in self.active:
            while activity.needs and activity.needs[0][1] == 0:
                activity.needs.pop(0)
            if not activity.needs:
                self.active.remove(activity)
                (self.times.issued if activity.is_launch else self.times.end)[activity.task] = self.now
                return True
        return False

    def _issue(self) -> bool:
        for device in self.devices:
            busy = any(self._occupies_host(activity, device) for activity in self.active)
            if busy or not self.to_issue[device]:
                continue
            first = self.to_issue[device][0]
            if self._runs_on_host(self.tasks[first]) and not self._waited_for(first):
                continue
            self.to_issue[device].pop(0)
            launch = self._launch(self.tasks[first])
            if self._runs_on_host(self.tasks[first]):
                self.times.issued[first] = self.now
                self._start(first, [("compute", device, 0)], [launch + Fraction(self.tasks[first].seconds)])
            else:
                host = "compute" if self.hardware.host_computes else "time"
                self.active.append(_Activity(first, True, [((host, device, 0), launch)]))
            return True
        return False

    def _begin(self) -> bool:
        for i, task in enumerate(self.tasks):
            before = [
                j for j in range(i) if (self.tasks[j].device, self.tasks[j].channel) == (task.device, task.channel)
            ]
            is_next = i not in self.times.start and all(j in self.times.end for j in before)
            if is_next and i in self.times.issued and not self._runs_on_host(task) and self._waited_for(i):
                if task.channel == COMPUTE:
                    self._start(i, [("compute", task.device, 0)], [Fraction(task.seconds)])
                else:
                    sending = [Fraction(part.seconds) for part in task.traffic]
                    latency = max(Fraction(task.seconds) - sum(sending), Fraction(0))
                    links: list[Resource] = [("link", task.device, part.level) for part in task.traffic]
                    self._start(i, [("time", 0, 0), *links], [latency, *sending])
                return True
        return False

    def _start(self, i: int, resources: list[Resource], amounts: list[Fraction]) -> None:
        self.times.start[i] = self.now
        self.active.append(_Activity(i, False, list(zip(resources, amounts, strict=True))))

    def _pass_time(self) -> None:
        """Until the first activity has what it needs of a resource."""
        rates = [self._rate(activity.needs[0][0]) for activity in self.active]
        moving = [(a, rate) for a, rate in zip(self.active, rates, strict=True) if rate]
        span = min(activity.needs[0][1] / rate for activity, rate in moving)
        for activity, rate in moving:
            resource, amount = activity.needs[0]
            activity.needs[0] = resource, amount - span * rate
        self.now += span

    def _rate(self, resource: Resource) -> Fraction:
        kind, device, _ = resource
        if kind == "link":
            return Fraction(1, sum(activity.needs[0][0] == resource for activity in self.active))
        running = [self.tasks[a.task] for a in self.active if not a.is_launch]
        if kind == "compute" and any(t.channel != COMPUTE and t.device == device for t in running):
            return 1 - Fraction(self.hardware.slowdown)
        return Fraction(1)

    # What is known of a task.

    def _launch(self, task: Task) -> Fraction:
        return task.launches * Fraction(self.hardware.launch_seconds)

    def _runs_on_host(self, task: Task) -> bool:
        return self.hardware.host_computes and task.channel == COMPUTE

    def _occupies_host(self, activity: _Activity, device: int) -> bool:
        task = self.tasks[activity.task]
        return task.device == device and (activity.is_launch or self._runs_on_host(task))

    def _waited_for(self, i: int) -> bool:
        return all(j in self.times.end for j in self.tasks[i].after)
