"""Ways to place the parallel branches of a plan on disjoint groups of devices, by the prices of operators.

If kernels are short, a step takes as long as the launches of all of them, and no division makes these fewer. On
disjoint devices, each device launches the kernels of its own branches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ...graph.collective_steps import Step, StepKind
from ...graph.graph import Graph, Node, Segment, Value
from ...graph.layout import Invariant, Mesh, Placement
from ...graph.layout_typing import Configuration, Uniformly, type_operator
from ...graph.plan import Exposure, Plan, PlannedNode, PlannedSegment
from ...index.library import Library
from ...machine.collective_price import price_step
from ...machine.machine import Machine
from ..choices.operator_options import float_types, price_node
from ..search_end import check_end
from .branch_assignment import Assignment, Groups, Steps, assign
from .series_parallel import Tree, decompose


@dataclass(frozen=True)
class Placing:
    """A mesh, the axis whose coordinates the branches run on, where each value is made (by path), and the seconds
    saved.
    """

    mesh: Mesh
    axis: int
    placed: dict[str, Placement]
    saved: float


def placings(plan: Plan, meshes: Sequence[Mesh], machine: Machine, library: Library) -> list[Placing]:
    """Ways to place a plan's branches on its mesh or one that splits an axis of it, those that save the most first.
    Savings are by the prices of operators and of what enters and leaves branches; all else that the plan does is left
    out.
    """
    prices, flow = _Prices(machine.exposing(Exposure()), library), _Flow.of(plan)
    tree = _tree(tuple(map(tuple, flow.before)))
    planned = [prices.planned(step, plan.mesh) for step in plan.graph.steps]
    found = []
    for mesh, axis, moved in _axes(plan.mesh, meshes):
        there = _There(flow, mesh, axis, moved, prices)
        seconds = [there.seconds(step) for step in plan.graph.steps]
        chosen = assign(tree, Steps(planned, seconds, flow.weights, there.crossing), mesh.axes[axis].degree)
        if chosen.saved > 0:
            found.append(Placing(mesh, axis, dict(_placed(plan.graph.graph, chosen, axis)), chosen.saved))
    return sorted(found, key=lambda placing: -placing.saved)


@lru_cache(maxsize=8)
def _tree(before: tuple[tuple[int, ...], ...]) -> Tree:
    return decompose(before)


@dataclass(frozen=True)
class _Flow:
    """The steps of a graph. By value: the step that makes it, those that read it, and whether it `left` the graph. By
    step: the weights that it reads.
    """

    steps: Sequence[Node | Segment]
    maker: Mapping[str, int]
    readers: Mapping[str, Sequence[int]]
    left: frozenset[str]
    weights: Sequence[frozenset[str]]

    @staticmethod
    def of(plan: Plan) -> _Flow:
        graph = plan.graph.graph
        maker = {value.name: number for number, step in enumerate(graph.steps) for value in step.makes}
        readers: dict[str, list[int]] = {}
        for number, step in enumerate(graph.steps):
            for value in step.reads:
                readers.setdefault(value.name, []).append(number)
        left = (value.name for value in (*plan.model.whole, *(update.value for update in graph.updates)))
        weights = {weight.value.name for weight in graph.weights}
        read = [frozenset(value.name for value in step.reads if value.name in weights) for step in graph.steps]
        return _Flow(graph.steps, maker, readers, frozenset(left), read)

    @property
    def before(self) -> list[list[int]]:
        """By step the steps that make what it reads."""
        return [sorted({self.maker[v.name] for v in step.reads if v.name in self.maker}) for step in self.steps]

    def crossing(self, groups: Groups) -> list[Value]:
        """The values that groups of steps are given by other steps, if they have a gradient, and those that they leave
        to other groups or at the end. A value that is left to both counts twice.
        """
        group_of = {step: number for number, group in enumerate(groups) for step in group}
        entering: dict[str, Value] = {}
        leaving = []
        for number in sorted(group_of):
            for value in self.steps[number].reads:
                maker = self.maker.get(value.name)
                if value.needs_gradient and maker is not None and maker not in group_of:
                    entering[value.name] = value
            for value in self.steps[number].makes:
                read = any(group_of.get(reader) != group_of[number] for reader in self.readers.get(value.name, ()))
                leaving += [value] * (read + (value.name in self.left))
        return [*entering.values(), *leaving]


Moved = Callable[[Configuration], Configuration]
"""The roles on another mesh, the axis of branches being Invariant."""


def _axes(given: Mesh, meshes: Sequence[Mesh]) -> Iterator[tuple[Mesh, int, Moved]]:
    """Axes for branches, with the roles there: those of a mesh, and axes of two devices that one of them is
    split into.
    """
    whole = Uniformly(Invariant())
    for axis, degree in enumerate(given.degrees):
        yield given, axis, lambda roles, axis=axis: (*roles[:axis], whole, *roles[axis + 1 :])  # type: ignore[misc]
        for place, parts in enumerate(((2, degree // 2), (degree // 2, 2))):
            degrees = (*given.degrees[:axis], *parts, *given.degrees[axis + 1 :])
            mesh = next((mesh for mesh in meshes if mesh.degrees == degrees), None)
            if degree > 2 and degree % 2 == 0 and mesh is not None:

                def split(roles: Configuration, axis: int = axis, place: int = place) -> Configuration:
                    return (*roles[: axis + place], whole, *roles[axis + place :])

                yield mesh, axis + place, split


@dataclass(frozen=True)
class _Prices:
    """Seconds of operators in a configuration, computed once for equal ones."""

    machine: Machine
    library: Library
    known: dict[tuple[Hashable, ...], float] = field(default_factory=dict)

    def of(self, node: Node, configuration: Configuration, mesh: Mesh) -> float:
        """Seconds of an operator, undivided if it cannot be divided by this configuration."""
        key = node.instance.identity, node.gradients, float_types(node), configuration, mesh
        if key not in self.known:
            typed = type_operator(node.instance, configuration, mesh, self.library)
            check_end()
            if isinstance(typed, str):
                whole = (Uniformly(Invariant()),) * len(mesh.axes)
                typed = type_operator(node.instance, whole, mesh, self.library)
            assert not isinstance(typed, str), "an operator can be whole"
            self.known[key] = float(price_node(node, [typed], mesh, self.machine, self.library)[0])
        return self.known[key]

    def planned(self, step: PlannedNode | PlannedSegment, mesh: Mesh) -> float:
        if isinstance(step, PlannedNode):
            return self.of(step.node, step.typed.configuration, mesh)
        return sum(run.count * sum(self.planned(inner, mesh) for inner in run.body.steps) for run in step.runs)


@dataclass(frozen=True)
class _There:
    """The seconds of a plan's steps on one coordinate of a mesh axis."""

    flow: _Flow
    mesh: Mesh
    axis: int
    moved: Moved
    prices: _Prices

    def seconds(self, step: PlannedNode | PlannedSegment) -> float | None:
        """Seconds of a step; None for a cond, which all devices decide together."""
        if isinstance(step, PlannedNode):
            return self.prices.of(step.node, self.moved(step.typed.configuration), self.mesh)
        if step.segment.predicate is not None:
            return None
        total = 0.0
        for run in step.runs:
            for inner in run.body.steps:
                if (seconds := self.seconds(inner)) is None:
                    return None
                total += run.count * seconds
        return total

    def crossing(self, groups: Groups) -> float:
        """Seconds of the all-reduces of what groups of steps leave to others, and of the gradients of what they are
        given.
        """
        step = Step(StepKind.ALL_REDUCE, (self.axis,))
        price, _ = price_step(step, self.mesh, self.prices.machine, 1.0)
        return sum(price.seconds(value.bytes) for value in self.flow.crossing(groups))


def _placed(graph: Graph, chosen: Assignment, axis: int) -> Iterator[tuple[str, Placement]]:
    for groups in chosen.regions:
        for coordinate, group in enumerate(groups):
            for step in group:
                yield from ((path, ((axis, coordinate),)) for path in _paths(graph.steps[step], ""))


def _paths(step: Node | Segment, prefix: str) -> Iterator[str]:
    """The values that a step makes, those of its body included."""
    yield from (prefix + value.name for value in step.makes)
    if isinstance(step, Segment):
        for inner in step.body.steps:
            yield from _paths(inner, f"{prefix}{step.name}.")
