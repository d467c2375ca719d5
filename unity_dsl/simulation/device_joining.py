"""Joins tasks of devices that do different things into one graph: a collective begins when all
members have reached it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .task import COMPUTE, Task, TaskGraph


class CrossedCollectives(ValueError):
    """Members of a group reach its collectives in different orders: such a program would deadlock."""


Place = Mapping[int, int]
"""A device's coordinates along the mesh axes on whose coordinates devices do different things."""


def join_devices(
    places: Sequence[Place], graphs: Sequence[TaskGraph], crossed: Callable[[str], Sequence[int]]
) -> TaskGraph:
    """The tasks of one device for each place. Devices are numbered by the time of their kernels, the longest first.
    `crossed` gives those of the axes along which the members of a channel's group differ.

    Raises CrossedCollectives if members of a group reach its collectives in different orders.
    """
    work = [sum(task.seconds for task in graph.tasks if task.channel == COMPUTE) for graph in graphs]
    order = sorted(range(len(graphs)), key=lambda device: -work[device])
    return _Joining([places[device] for device in order], [graphs[device] for device in order], crossed).joined()


class _Joining:
    """The tasks joined so far. `numbers[d]` are the new numbers of the listed tasks of device d."""

    def __init__(
        self, places: Sequence[Place], graphs: Sequence[TaskGraph], crossed: Callable[[str], Sequence[int]]
    ) -> None:
        self.places, self.graphs, self.crossed = places, graphs, crossed
        self.numbers: list[list[int]] = [[] for _ in graphs]
        self.tasks: list[Task] = []

    def joined(self) -> TaskGraph:
        devices = range(len(self.graphs))
        while left := [device for device in devices if self._next(device) is not None]:
            for device in left:
                while (task := self._next(device)) is not None and not self._crosses(task):
                    self._list([device])
            stopped = [device for device in left if self._next(device) is not None]
            together = next((found for device in stopped if (found := self._members(device))), None)
            if together is not None:
                self._list(together)
            elif stopped:
                waiting = (f"{task.name} of {task.place}" for d in stopped if (task := self._next(d)) is not None)
                raise CrossedCollectives(f"devices come to collectives in different orders: {', '.join(waiting)}")
        held = [graph.held for graph in self.graphs]
        return TaskGraph(tuple(self.tasks), max(held), held)

    def _next(self, device: int) -> Task | None:
        tasks, done = self.graphs[device].tasks, len(self.numbers[device])
        return tasks[done] if done < len(tasks) else None

    def _crosses(self, task: Task) -> bool:
        return task.channel != COMPUTE and bool(self.crossed(task.channel))

    def _members(self, device: int) -> list[int] | None:
        """The members of the group whose collective a device has reached; None unless all have reached it."""
        task = self._next(device)
        assert task is not None, "the device has stopped"
        axes = self.crossed(task.channel)
        here = {axis: place for axis, place in self.places[device].items() if axis not in axes}
        found = []
        for other, places in enumerate(self.places):
            if all(places[axis] == place for axis, place in here.items()):
                come_to = self._next(other)
                if come_to is None or (come_to.channel, come_to.name, come_to.place) != _collective(task):
                    return None
                found.append(other)
        return found

    def _list(self, devices: Sequence[int]) -> None:
        """Lists the next task of each device as joined tasks, which wait for everything that any of them waits for."""
        tasks = [(device, task) for device in devices if (task := self._next(device)) is not None]
        after = tuple(sorted({self.numbers[device][number] for device, task in tasks for number in task.after}))
        reads = tuple(sorted({self.numbers[device][number] for device, task in tasks for number in task.reads}))
        for device, task in tasks:
            self.numbers[device].append(len(self.tasks))
            self.tasks.append(replace(task, device=device, after=after, reads=reads))


def _collective(task: Task) -> tuple[str, str, str]:
    return task.channel, task.name, task.place
