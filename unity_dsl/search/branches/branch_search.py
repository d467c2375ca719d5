"""Plans with parallel branches on disjoint groups of devices, beside the best plan without: the simulator chooses.

Where kernels are short, a step takes as long as the launches of all of them, which no division makes fewer; on disjoint
devices each launches those of its own branches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

from ...graph.collective_steps import Step, StepKind
from ...graph.graph import Graph, Node, Segment, Value
from ...graph.layout import Invariant, Mesh, Placement
from ...graph.layout_typing import Configuration, TypedOperator, Uniformly, type_operator
from ...graph.plan import Exposure, Plan, PlannedGraph, PlannedNode, PlannedSegment
from ...index.library import Library
from ...machine.collective_price import price_step
from ...machine.machine import Machine
from ...syntax.diagnostic import InputError
from ..accounting.weighed_plan import counted
from ..choices.operator_options import price_node
from ..choices.restriction import Restriction
from ..meshes.mesh_search import search_meshes
from ..meshes.near_search import Task, held_by, near_plan
from ..search_end import SearchEnded
from ..search_progress import tell_stage
from ..wanted import Wanted, made
from .branch_assignment import Assignment, Groups, Steps, assign
from .series_parallel import decompose

WORTH = 0.03
"""Of a step: what branches must save by the prices of operators for a plan with them to be searched."""
SEARCHED = 2
"""So many of the ways to place branches are searched, those that save the most."""


@dataclass(frozen=True)
class Placing:
    """A mesh with the axis on whose coordinates branches are, and by path of values where each is made."""

    mesh: Mesh
    axis: int
    placed: dict[str, Placement]
    saved: float


def placings(plan: Plan, meshes: Sequence[Mesh], machine: Machine, library: Library) -> list[Placing]:
    """Ways to place a plan's branches on its mesh or one that splits an axis of it: those that save the most first, by
    the prices of operators and of what enters and leaves branches; what else the plan would do is left out.
    """
    whole = machine.exposing(Exposure())
    tree = decompose(_reads(plan.graph.graph))
    found = []
    for mesh, axis, moved in _axes(plan.mesh, meshes):
        seconds = _Seconds(plan, mesh, axis, moved, whole, library)
        chosen = assign(tree, seconds.steps(), mesh.axes[axis].degree)
        if chosen.saved > 0:
            found.append(Placing(mesh, axis, dict(_placed(plan.graph.graph, chosen, axis)), chosen.saved))
    return sorted(found, key=lambda placing: -placing.saved)


def _reads(graph: Graph) -> list[list[int]]:
    """By step the steps that make what it reads."""
    maker = {value.name: number for number, step in enumerate(graph.steps) for value in step.makes}
    return [sorted({maker[value.name] for value in step.reads if value.name in maker}) for step in graph.steps]


Moved = Callable[[Configuration], Configuration]
"""The roles on another mesh, the axis of branches being Invariant."""


def _axes(given: Mesh, meshes: Sequence[Mesh]) -> Iterator[tuple[Mesh, int, Moved]]:
    """The axes of a mesh, and those of two devices that an axis is split into."""
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
class _Seconds:
    """What the steps of a plan take as they are planned and on one coordinate of a mesh axis."""

    plan: Plan
    mesh: Mesh
    axis: int
    moved: Moved
    machine: Machine
    library: Library

    def steps(self) -> Steps:
        graph = self.plan.graph
        weights = {weight.value.name for weight in graph.graph.weights}
        planned = [self.planned(step) for step in graph.steps]
        there = [self.there(step) for step in graph.steps]
        read = [frozenset(value.name for value in step.reads if value.name in weights) for step in graph.graph.steps]
        return Steps(planned, there, read, self.crossing)

    def planned(self, step: PlannedNode | PlannedSegment) -> float:
        if isinstance(step, PlannedNode):
            return self.priced(step, step.typed, self.plan.mesh)
        return sum(run.count * sum(map(self.planned, run.body.steps)) for run in step.runs)

    def there(self, step: PlannedNode | PlannedSegment) -> float | None:
        """None of a cond, which all devices decide together."""
        if isinstance(step, PlannedNode):
            roles = self.moved(step.typed.configuration)
            typed = type_operator(step.node.instance, roles, self.mesh, self.library)
            if isinstance(typed, str):
                whole = (Uniformly(Invariant()),) * len(self.mesh.axes)
                typed = type_operator(step.node.instance, whole, self.mesh, self.library)
            assert not isinstance(typed, str), "an operator can be whole"
            return self.priced(step, typed, self.mesh)
        if step.segment.predicate is not None:
            return None
        total = 0.0
        for run in step.runs:
            for inner in run.body.steps:
                if (seconds := self.there(inner)) is None:
                    return None
                total += run.count * seconds
        return total

    def priced(self, step: PlannedNode, typed: TypedOperator, mesh: Mesh) -> float:
        return float(price_node(step.node, [typed], mesh, self.machine, self.library)[0])

    def crossing(self, groups: Groups) -> float:
        """Of what groups of steps leave to others, and of the gradients of what they are given, all-reduces."""
        graph = self.plan.graph.graph
        group_of = {step: number for number, group in enumerate(groups) for step in group}
        maker = {value.name: number for number, step in enumerate(graph.steps) for value in step.makes}
        left = {value.name for value in (*self.plan.model.whole, *(update.value for update in graph.updates))}
        values: dict[str, Value] = {}
        for number, step in enumerate(graph.steps):
            for value in step.reads:
                there = group_of.get(maker.get(value.name, -1))
                if value.name in maker and there != group_of.get(number):
                    values[value.name] = value
        entering = [v for v in values.values() if v.needs_gradient and maker[v.name] not in group_of]
        leaving = [v for v in values.values() if maker[v.name] in group_of]
        leaving += [v for n, step in enumerate(graph.steps) if n in group_of for v in step.makes if v.name in left]
        read = {value.name for number in group_of for value in graph.steps[number].reads}
        entering = [value for value in entering if value.name in read]
        price, _ = price_step(Step(StepKind.ALL_REDUCE, (self.axis,)), self.mesh, self.machine, 1.0)
        return sum(price.seconds(value.bytes) for value in (*entering, *leaving))


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


# ---------------------------------------------------------------------------------------------- plans


def shortest_with_branches(
    given: Plan, meshes: Sequence[Mesh], referee: Callable[[Plan], float], wanted: Wanted
) -> Plan:
    """The plan, or the one with branches on disjoint devices that fits the memory and that the referee gives fewer
    seconds. Where the search ends, what is known by then.
    """
    if given.mesh.size == 1 or given.warnings or given.recomputed or given.gathered_again:
        return given
    best, least = given, inf
    with suppress(SearchEnded):
        found = placings(given, meshes, wanted.machine, wanted.library)
        for placing in found[:SEARCHED] if found else ():
            least = referee(given) if least == inf else least
            if placing.saved < WORTH * least:
                break
            tell_stage("branches on disjoint devices", least)
            plan = _with_branches(given, placing, wanted)
            if plan is not None and (seconds := referee(plan)) < least:
                note = _told(plan, placing, seconds / referee(given))
                best, least = replace(plan, notes=(*given.notes, note)), seconds
    return best


def _with_branches(given: Plan, placing: Placing, wanted: Wanted) -> Plan | None:
    """A plan with these branches, if there is one and it fits: that of a local search from the given plan, or else the
    cheapest.
    """
    model = given.model

    def allowed(mesh: Mesh) -> Restriction:
        return replace(wanted.allowed(model, mesh, wanted.pins), placed=placing.placed)

    task, known, best = Task(model, wanted.priced, allowed), wanted.found.get(given.mesh), None
    if known is not None and known.problem.meaning.graph is model.graph:
        best = near_plan(task, placing.mesh, held_by(placing.mesh, [known]), inf)
    if best is None:
        try:
            best = search_meshes(task, (placing.mesh,), inf).found
        except InputError:
            return None
    if best is None:
        return None
    found = counted(made(best, model, wanted), wanted.library)
    fits = found.cost.memory.total <= wanted.machine.memory_bytes
    return replace(found, rules=given.rules, considered=given.considered) if fits else None


def _told(plan: Plan, placing: Placing, ratio: float) -> str:
    degree = placing.mesh.degrees[placing.axis]
    groups = [list(_made_at(plan.graph, placing.axis, coordinate)) for coordinate in range(degree)]
    told = ", ".join(f"{_some(names)} on {number}" for number, names in enumerate(groups) if names)
    return (
        f"branches run on {degree} disjoint groups of devices: {told}; so a step is simulated to take "
        f"{ratio:.2f} of the time of the best plan without"
    )


def _made_at(graph: PlannedGraph, axis: int, coordinate: int) -> Iterator[str]:
    """The values of a graph that are made on a coordinate."""
    for step in graph.steps:
        if isinstance(step, PlannedNode) and (axis, coordinate) in step.placement:
            yield step.node.results[0].name


def _some(names: Sequence[str]) -> str:
    """The first and the last of them."""
    return f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` to `{names[-1]}`"
