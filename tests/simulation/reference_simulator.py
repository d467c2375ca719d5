"""A simulation of task graphs with exact times. After each step in time, it searches all tasks for those that can run.

It shares nothing with the simulator but `Task`. It is quadratic in tasks, and slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from unity_dsl.simulation.hardware import Hardware
from unity_dsl.simulation.task import COMPUTE, Task, TaskGraph

Resource = tuple[str, int, int]
"""Kind, device and level of a resource. The kinds are "time", which is unlimited, "compute" and "link"."""


@dataclass
class Times:
    """When each task was issued, began and ended."""

    issued: dict[int, Fraction]
    start: dict[int, Fraction]
    end: dict[int, Fraction]


@dataclass
class _Activity:
    """A launch or a task, with its remaining stages. A stage needs amounts of several resources at the same time."""

    task: int
    is_launch: bool
    stages: list[dict[Resource, Fraction]]


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

    # What can happen now. Each method returns whether it did.

    def _finish(self) -> bool:
        for activity in self.active:
            while activity.stages and not any(activity.stages[0].values()):
                activity.stages.pop(0)
            if not activity.stages:
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
                self._start(first, {("compute", device, 0): launch + Fraction(self.tasks[first].seconds)})
            else:
                host = "compute" if self.hardware.host_computes else "time"
                self.active.append(_Activity(first, True, [{(host, device, 0): launch}]))
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
                    self._start(i, {("compute", task.device, 0): Fraction(task.seconds)})
                else:
                    links = {("link", task.device, part.level): Fraction(part.seconds) for part in task.traffic}
                    latency = Fraction(task.seconds) - max(links.values(), default=Fraction(0))
                    self._start(i, {("time", 0, 0): max(latency, Fraction(0))}, links)
                return True
        return False

    def _start(self, i: int, *stages: dict[Resource, Fraction]) -> None:
        self.times.start[i] = self.now
        self.active.append(_Activity(i, False, list(stages)))

    def _pass_time(self) -> None:
        """Advances until an activity has all that it needs of a resource."""
        needs = [
            (activity.stages[0], resource, self._rate(resource))
            for activity in self.active
            for resource, amount in activity.stages[0].items()
            if amount
        ]
        span = min(stage[resource] / rate for stage, resource, rate in needs if rate)
        for stage, resource, rate in needs:
            stage[resource] -= span * rate
        self.now += span

    def _rate(self, resource: Resource) -> Fraction:
        kind, device, _ = resource
        if kind == "link":
            return Fraction(1, sum(bool(activity.stages[0].get(resource)) for activity in self.active))
        running = [self.tasks[activity.task] for activity in self.active if not activity.is_launch]
        if kind == "compute" and any(t.channel != COMPUTE and t.device == device for t in running):
            return 1 - Fraction(self.hardware.slowdown)
        return Fraction(1)

    # Properties of a task.

    def _launch(self, task: Task) -> Fraction:
        return task.launches * Fraction(self.hardware.launch_seconds)

    def _runs_on_host(self, task: Task) -> bool:
        return self.hardware.host_computes and task.channel == COMPUTE

    def _occupies_host(self, activity: _Activity, device: int) -> bool:
        task = self.tasks[activity.task]
        return task.device == device and (activity.is_launch or self._runs_on_host(task))

    def _waited_for(self, i: int) -> bool:
        return all(j in self.times.end for j in self.tasks[i].after)
