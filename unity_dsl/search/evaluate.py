"""Evaluates plans: the simulated step, cached by what it depends on, within a budget of evaluations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf

from ..graph.plan import Plan, PlannedGraph, PlannedSegment
from ..index.library import Library
from ..machine.machine import Machine
from ..simulation.device_joining import CrossedCollectives
from ..simulation.step_tasks import simulate_step
from ..simulation.timeline import Timeline
from .accounting.memory_budget import Budget, memory_warnings
from .accounting.weighed_plan import counted


class BudgetSpent(Exception):
    """All evaluations that the effort allows are done."""


KEPT = 32
"""Timelines that are kept: those of large models in many micro-batches take 50 MB each."""


Evaluations = Mapping[object, tuple[float, float | None]]
"""By content, the seconds of a simulated step and its peak bytes; these are None where the step deadlocks."""


@dataclass
class Evaluator:
    """Simulates the steps of at most `most` plans on a machine, and keeps the timelines of the last ones."""

    machine: Machine
    library: Library
    most: float = inf
    _timelines: OrderedDict[object, Timeline] = field(default_factory=OrderedDict)
    _seconds: dict[object, float] = field(default_factory=dict)
    _held: dict[object, float] = field(default_factory=dict)
    _contents: dict[int, tuple[PlannedGraph, int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many plans were simulated."""
        return len(self._seconds)

    def timeline(self, plan: Plan) -> Timeline:
        """The timeline of a plan's simulated step. Raises BudgetSpent, or CrossedCollectives where the step
        deadlocks.
        """
        key = self.content(plan)
        if key not in self._timelines:
            if key not in self._seconds and self.count >= self.most:
                raise BudgetSpent
            self._seconds.setdefault(key, inf)
            timeline = self._timelines[key] = simulate_step(plan, self.machine, self.library)
            self._seconds[key], self._held[key] = timeline.seconds, timeline.graph.peak().bytes
            if len(self._timelines) > KEPT:
                self._timelines.popitem(last=False)
        self._timelines.move_to_end(key)
        return self._timelines[key]

    def seconds(self, plan: Plan) -> float:
        """Seconds of the simulated step; infinite where collectives of devices would wait for each other."""
        if (key := self.content(plan)) not in self._seconds:
            with suppress(CrossedCollectives):
                self.timeline(plan)
        return self._seconds[key]

    def known(self) -> frozenset[object]:
        """The contents that were evaluated by now."""
        return frozenset(self._seconds)

    def since(self, known: frozenset[object]) -> Evaluations:
        """The evaluations that are not among the `known` ones, for another process."""
        return {key: (seconds, self._held.get(key)) for key, seconds in self._seconds.items() if key not in known}

    def learn(self, found: Evaluations) -> None:
        """Takes over what another process evaluated. Raises BudgetSpent."""
        for key, (seconds, held) in found.items():
            if key not in self._seconds:
                if self.count >= self.most:
                    raise BudgetSpent
                self._seconds[key] = seconds
                if held is not None:
                    self._held[key] = held

    def content(self, plan: Plan) -> object:
        """The key of a simulated step: all that it depends on, equal for equal plans however they were found."""
        known = self._contents.get(id(plan.graph))
        if known is None or known[0] is not plan.graph:
            known = self._contents[id(plan.graph)] = plan.graph, hash(_content(plan.graph))
        return known[1], id(plan.model.graph), plan.mesh.degrees, plan.exposed, plan.micro_batches, plan.passes

    def held(self, plan: Plan) -> float:
        """Peak bytes of a device in the simulated step."""
        if (key := self.content(plan)) not in self._held:
            self.timeline(plan)
        return self._held[key]

    def fits(self, plan: Plan) -> bool:
        """Whether the peak memory of the step fits a device."""
        return self.held(plan) <= self.machine.memory_bytes

    def counted(self, plan: Plan) -> Plan:
        """The plan with its memory, and a warning where a device has less."""
        plan = counted(plan, self.budget(plan))
        warnings = plan.warnings or tuple(memory_warnings(plan.cost.memory, self.machine))
        return replace(plan, warnings=warnings)

    def budget(self, plan: Plan) -> Budget:
        """The memory that a plan may use, given its number of micro-batches."""
        return Budget(self.machine, self.library, plan.division)


def _content(graph: PlannedGraph) -> tuple[object, ...]:
    """The layouts of values and the configurations of operators, in order."""
    values = tuple(
        (name, planned.produced, tuple((made.layout, made.source) for made in planned.materialised))
        for name, planned in graph.values.items()
    )
    return values, tuple(
        (step.segment.name, step.border, tuple((run.first, run.count, _content(run.body)) for run in step.runs))
        if isinstance(step, PlannedSegment)
        else (step.node.name, step.typed.configuration, step.placement)
        for step in graph.steps
    )
