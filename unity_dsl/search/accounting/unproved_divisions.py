"""Notes of a plan (for its user) on operators that devices repeat because no division of them is proved.

They list operators that take a relevant part of the step, with every axis that a mesh axis would divide and the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ...graph.graph import Model
from ...graph.layout import Mesh, MeshAxis
from ...graph.layout_typing import Along, Uniformly, type_operator
from ...graph.plan import Advice, Plan, PlannedGraph, PlannedNode, PlannedSegment, Undivided
from ...graph.precision import FULL
from ...index.axes.axis_classes import AxisKind, classify
from ...index.axes.axis_windows import Windowed, windowed
from ...index.cost.work import work
from ...index.library import Library
from ...machine.machine import Machine
from ...prove.sharding.equation_congruence import obstacles
from ...rules.sharding_theorems import ShardingTheorems
from .undivided_sizes import UNDIVIDED_SIZE, describe_refusals

ALL_WHOLE = Advice("no operator is divided: at these sizes communication would cost more than it saves")
UNDIVIDED = "not divided: "
"""The beginning of these notes."""

LEAST = 0.005
"""The smallest fraction of a step's work, or of what its operators write, for which an operator is listed."""

_NAMED = 3


@dataclass(frozen=True)
class _Weighed:
    """An operator, and its fraction of the time or of the bytes written in a device's forward pass, whichever is
    larger.
    """

    planned: PlannedNode
    share: float


def with_undivided(
    notes: Sequence[str], model: Model, plan: Plan, machine: Machine, library: Library
) -> tuple[str, ...]:
    """The notes, extended by what is not divided in this plan: sizes that no mesh axis divides, and operators without a
    proved division.
    """
    unproved = list(describe_unproved(plan.graph, plan.mesh, machine, library))
    others = (note for note in notes if not isinstance(note, Undivided) and not note.startswith(UNDIVIDED_SIZE))
    kept = (note for note in others if not unproved or note != ALL_WHOLE)
    return (*kept, *describe_refusals(model, plan.mesh, library), *unproved)


def describe_unproved(graph: PlannedGraph, mesh: Mesh, machine: Machine, library: Library) -> Iterator[str]:
    """One sentence for each operator's declaration, the largest part of the step first."""
    if mesh.size == 1:
        return
    theorems = ShardingTheorems(library)
    told: set[str] = set()
    for weighed in sorted(_weighed(graph, machine), key=lambda one: -one.share):
        name = weighed.planned.node.instance.name
        if weighed.share < LEAST or name in told:
            continue
        idle = _idle(weighed.planned, mesh)
        if idle and (reasons := _grouped(_reasons(weighed.planned, idle, library, theorems))):
            told.add(name)
            made, devices = weighed.planned.node.name, prod(axis.degree for axis in idle)
            more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
            why = "; ".join(reasons[:_NAMED]) + more
            yield Undivided(f"{UNDIVIDED}{devices} devices repeat `{name}` of {made}: {why}")


def _weighed(graph: PlannedGraph, machine: Machine) -> list[_Weighed]:
    nodes = [(planned, times) for planned, times in _nodes(graph, 1) if planned.node.instance.equations]
    works = [work(planned.node.instance, planned.typed.local_sizes) for planned, _ in nodes]
    seconds = [
        times * (float(done.flops) / machine.peak[FULL] + machine.traffic_seconds(float(done.bytes_read)))
        for done, (_, times) in zip(works, nodes, strict=True)
    ]
    written = [times * float(done.bytes_written) for done, (_, times) in zip(works, nodes, strict=True)]
    totals = sum(seconds) or 1.0, sum(written) or 1.0
    return [
        _Weighed(planned, max(time / totals[0], count / totals[1]))
        for (planned, _), time, count in zip(nodes, seconds, written, strict=True)
    ]


def _nodes(graph: PlannedGraph, times: int) -> Iterator[tuple[PlannedNode, int]]:
    """Every operator, with how often it is executed."""
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                yield from _nodes(run.body, times * run.count)
        else:
            yield step, times


def _idle(planned: PlannedNode, mesh: Mesh) -> list[MeshAxis]:
    """The mesh axes over which all devices do the same."""
    roles = zip(mesh.axes, planned.typed.configuration, strict=True)
    return [axis for axis, role in roles if isinstance(role, Uniformly) and axis.degree > 1]


def _reasons(
    planned: PlannedNode, idle: Sequence[MeshAxis], library: Library, theorems: ShardingTheorems
) -> Mapping[str, str]:
    """For each axis that a mesh axis would divide, why it is not divided. Empty if one of the axes may be divided."""
    instance, found = planned.node.instance, dict[str, str]()
    holds = theorems.about(instance, planned.node.gradients)
    windows = windowed(instance, library)
    for axis, entry in classify(instance, library).items():
        degrees = [mesh_axis.degree for mesh_axis in idle if planned.typed.local_sizes[axis] % mesh_axis.degree == 0]
        if not degrees or entry.kind is AxisKind.DECLARED:
            continue
        if entry.kind is not AxisKind.BLOCKED:
            alone = Mesh((MeshAxis("a", degrees[0]),))
            typed = type_operator(instance, (Along(axis),), alone, library)
            if not isinstance(typed, str) and holds(Along(axis)):
                return {}
            found[axis] = typed if isinstance(typed, str) else f"{theorems.why_not(instance, Along(axis))}"
        elif isinstance(windows.get(axis), Windowed):
            return {}
        else:
            found[axis] = next(obstacles(instance, axis), entry.reason)
    return found


def _grouped(reasons: Mapping[str, str]) -> list[str]:
    """Each reason, with the axes that it applies to."""
    axes: dict[str, list[str]] = {}
    for axis, reason in reasons.items():
        axes.setdefault(reason, []).append(f"`{axis}`")
    return [f"along {', '.join(named)}: {reason}" for reason, named in axes.items()]
