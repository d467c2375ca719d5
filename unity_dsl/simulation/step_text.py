"""A simulated step as text: what runs on which stream, what waits for what, memory held; identical iterations once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from ..graph.plan import without_iterations
from ..machine.byte_count import describe_bytes
from ..written_figures import duration
from .task import COMPUTE, Phase, Purpose
from .timeline import Timeline

SHOWN = 2
"""Number of first micro-batches that are written, in addition to the last one. The first one begins without gradients
of others.
"""
WIDTH = 58
"""Columns of a task's name and place."""
_BESIDE = frozenset({"bucket", "pack", "add gradients", "cast", "join", "copy", "stack", "zeros", "update"})
"""Kernels that do not tell which iteration they belong to."""


@dataclass(frozen=True)
class _Iteration:
    """Consecutive tasks, by number, of one iteration of a loop; outside of any loop if `loop` is empty."""

    loop: str
    number: int
    tasks: tuple[int, ...]


def step_lines(timeline: Timeline, device: int = 0) -> Iterator[str]:
    """The tasks of a device by phase, in the order in which it issues them, without views. Iterations of a loop that do
    the same are one block with the tasks of the second one. In it, `layer+1` marks what they start for the next
    iteration. The gradients that they send in buckets are totalled.
    """
    every = enumerate(timeline.graph.tasks)
    numbers = [n for n, task in every if task.device == device and (task.launches or task.seconds)]
    writer = _Writer(timeline, numbers, device)
    yield f"{'':5}{'task':{WIDTH}}{'stream':16}{'time':>9}  waits for"
    phases = [(p, [*some]) for p, some in groupby(numbers, key=lambda number: timeline.graph.tasks[number].phase)]
    count = sum(phase is Phase.FORWARD for phase, _ in phases)
    number = 0
    for phase, some in phases:
        number += phase is Phase.FORWARD
        if SHOWN < number < count:  # the same as the micro-batch before
            continue
        of = f" of micro-batch {number} of {count}" if count > 1 and phase is not Phase.UPDATE else ""
        alike = f", the same until {count - 1}" if of and number == SHOWN < count - 1 else ""
        yield from ("", f"{phase.value}{of}{alike}:")
        yield from writer.block(some, "", "  ")


@dataclass
class _Writer:
    """Writes lines. `labels` are the line numbers of tasks, `held` is the memory in bytes from each task on, `shown`
    are the iterations of loops that are being written.
    """

    timeline: Timeline
    numbers: Sequence[int]
    device: int
    labels: dict[int, str] = field(default_factory=dict)
    held: dict[int, float] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    lines: int = 0

    def __post_init__(self) -> None:
        tasks = self.timeline.graph.tasks
        before = [0.0, *(tasks[number].freed for number in self.numbers)]
        changes = (tasks[n].allocated - freed for n, freed in zip(self.numbers, before, strict=False))
        start = self.timeline.graph.held_before(self.device)
        totals = accumulate(changes, initial=start)
        next(totals)
        self.held = dict(zip(self.numbers, totals, strict=True))

    def block(self, numbers: Sequence[int], prefix: str, indent: str) -> Iterator[str]:
        """Writes tasks of one iteration of the loops that a `prefix` of paths names."""
        for _, alike in groupby(self._iterations(numbers, prefix), key=self._signature):
            run = list(alike)
            if run[0].loop:
                yield from self._loop(run, prefix, indent)
            else:
                for iteration in run:
                    yield from self._tasks(iteration.tasks, indent)

    def _loop(self, run: Sequence[_Iteration], prefix: str, indent: str) -> Iterator[str]:
        first, last, shown = run[0], run[-1], run[min(1, len(run) - 1)]
        held = " to ".join(describe_bytes(self.held[number]) for number in (first.tasks[0], last.tasks[-1]))
        numbers = str(first.number) + (f" to {last.number}" if len(run) > 1 else "")
        yield f"     {indent}{shown.loop} {numbers}: {held} held"
        common = [number for number in shown.tasks if not self._is_gradient(number)]
        inner = f"{prefix}{shown.loop}" + r"\.\d+\."
        self.shown[shown.loop] = shown.number
        yield from self.block(common, inner, indent + "  ")
        del self.shown[shown.loop]
        for iteration in run:
            own = [number for number in iteration.tasks if not self._is_gradient(number)]
            if iteration is not shown and len(own) == len(common):
                before = zip(own, common, strict=True)
                self.labels |= {number: self.labels[one] for number, one in before if one in self.labels}
        yield from self._gradients(run, indent + "  ")

    def _gradients(self, run: Sequence[_Iteration], indent: str) -> Iterator[str]:
        """The gradients that these iterations send in buckets or accumulate, by stream."""
        tasks, timeline = self.timeline.graph.tasks, self.timeline
        found = [number for iteration in run for number in iteration.tasks if self._is_gradient(number)]
        count = Counter((tasks[number].name, tasks[number].channel) for number in found)
        for (name, channel), times in count.items():
            some = [number for number in found if (tasks[number].name, tasks[number].channel) == (name, channel)]
            seconds = sum(float(timeline.end[number] - timeline.start[number]) for number in some)
            self.lines += 1
            self.labels |= dict.fromkeys(some, str(self.lines))
            sent = sum(tasks[number].sent for number in some)
            of = "" if "gradients" in name else " of gradients"
            words = f"{indent}{name}{of}, {times} in all" + (f", {describe_bytes(sent)}" if sent else "")
            yield f"{self.lines:>4} {words:{WIDTH}}{channel:16}{duration(seconds):>9}"

    def _tasks(self, numbers: Sequence[int], indent: str) -> Iterator[str]:
        tasks, timeline = self.timeline.graph.tasks, self.timeline
        for number in numbers:
            task = tasks[number]
            self.lines += 1
            self.labels[number] = str(self.lines)
            name = indent + " ".join(filter(None, (task.name, self._place(task.place))))
            seconds = float(timeline.end[number] - timeline.start[number])
            waits = dict.fromkeys(self.labels[one] for one in task.after if one in self.labels)
            waits_for = f"  {', '.join(waits)}" if waits else ""
            yield f"{self.lines:>4} {name:{WIDTH}}{task.channel:16}{duration(seconds):>9}{waits_for}"

    def _iterations(self, numbers: Sequence[int], prefix: str) -> Iterator[_Iteration]:
        """The tasks of each iteration. A kernel with another iteration number begins a new one."""
        pattern = re.compile(rf"{prefix}(?P<loop>[A-Za-z_][\w.]*?)\.(?P<number>\d+)\.")
        now, some = ("", 0), list[int]()
        for number in numbers:
            task = self.timeline.graph.tasks[number]
            if task.channel == COMPUTE and task.name not in _BESIDE:
                found = pattern.match(task.place)
                key = (found["loop"], int(found["number"])) if found else ("", 0)
                if key != now and some:
                    yield _Iteration(*now, tuple(some))
                    some = []
                now = key
            some.append(number)
        if some:
            yield _Iteration(*now, tuple(some))

    def _signature(self, iteration: _Iteration) -> object:
        """The tasks of an iteration itself, which identical iterations have in common."""
        tasks = [self.timeline.graph.tasks[n] for n in iteration.tasks if not self._is_gradient(n)]
        own = [task for task in tasks if f"{iteration.loop}.{iteration.number}." in task.place]
        return iteration.loop, tuple(
            (task.name, without_iterations(task.place), task.channel, task.launches) for task in own
        )

    def _is_gradient(self, number: int) -> bool:
        task = self.timeline.graph.tasks[number]
        return task.purpose is Purpose.GRADIENTS or task.name in ("bucket", "pack", "add gradients")

    def _place(self, place: str) -> str:
        """A place without the numbers of the iterations that are shown. Neighbouring iterations become `loop-1` and
        `loop+1`.
        """
        for loop, number in self.shown.items():
            before, now, behind = f"{loop}.{number - 1}.", f"{loop}.{number}.", f"{loop}.{number + 1}."
            place = place.replace(now, f"{loop}.").replace(before, f"{loop}-1.").replace(behind, f"{loop}+1.")
        return place
