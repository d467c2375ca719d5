"""Notes of a plan for its user: what is proved optimal, over which meshes, and which limits the search reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ..graph.graph import Model, Segment
from ..graph.layout import Mesh
from ..graph.plan import Advice, Plan, PlannedGraph, PlannedNode, PlannedSegment, Proof
from ..graph.precision import FULL, PRECISIONS
from ..machine.byte_count import describe_bytes
from ..machine.machine import Machine
from ..machine.mesh import describe_mesh
from ..syntax.diagnostic import first_of
from ..written_figures import duration, percent
from .accounting.unproved_divisions import ALL_WHOLE
from .memory_limit.multiplier_search import Tried
from .meshes.mesh_search import Outcome
from .model_variants.variant_enumeration import Variants

_NAMED = 6
DUALITY = "duality gap: "
"""The first words of a note on optimality among plans that fit the memory."""


def describe_outcome(outcome: Outcome, meshes: Sequence[Mesh], graph: PlannedGraph, pinned: bool) -> Iterator[str]:
    """Notes on a searched plan: what is proved, which meshes were not searched, and which limits were reached."""
    yield Proof(_proof(outcome, meshes, pinned))
    left = [mesh for mesh in meshes if mesh not in outcome.bounds and mesh not in outcome.refused]
    if near := [mesh for mesh in left if mesh in outcome.near]:
        yield f"searched only in the neighbourhood of plans of other meshes: {_named(near)}"
    if others := [mesh for mesh in left if mesh not in outcome.near]:
        yield f"not searched, being less promising: {_named(others)}"
    full = sum(len(planned.materialised) == 2 for part in _graphs(graph) for planned in part.values.values())
    if full:
        values = "1 value is" if full == 1 else f"{full} values are"
        yield f"{values} held in two further layouts, the most that is considered"
    if meshes[0].size > 1 and not any(_divides(part) for part in _graphs(graph)):
        yield ALL_WHOLE


def _proof(outcome: Outcome, meshes: Sequence[Mesh], pinned: bool) -> str:
    """How far from the cheapest plan this one may be and, after a colon, the meshes for which that is known."""
    kept = ", among plans that keep the pins" if pinned else ""
    why = "the tables grew too large" if outcome.ended is None else f"the search was ended by {outcome.ended}"
    if not outcome.bounds:
        return f"not proved optimal, no bound is known: {why}"
    if not outcome.exact and outcome.bound <= 0:
        return "not proved optimal, no bound is known: only the neighbourhood of an earlier plan was searched"
    count = f"{len(outcome.bounds)} of {len(meshes)}" if len(outcome.bounds) < len(meshes) else f"all {len(meshes)}"
    where = f" on {count} meshes: {', '.join(map(describe_mesh, outcome.bounds))}" if len(meshes) > 1 else ""
    if outcome.exact:
        return f"proved optimal under the additive cost model{kept}{where}"
    gap = percent(100 * (1 - outcome.bound / outcome.cost))
    return f"within {gap} of the optimum of the additive cost model{kept} ({why}){where}"


def describe_variants(best: Plan, found: Variants, model: Model, searched: int) -> Iterator[str]:
    """Notes on rules that make other models: what they did, how many models were `searched`, and which limits were
    reached.
    """
    applied = ", ".join(f"`{used.rule}` at {used.place}" for used in best.rules)
    count = len(found.found)
    looked = f"{count} model{'s' if count > 1 else ''} made by rules compared with the given one"
    if count:
        yield f"rules applied: {applied}; {looked}" if applied else f"no rule makes the model cheaper; {looked}"
    else:
        yield "no rule fits the model"
    if not found.complete:
        yield "the rules make more models than were looked at"
    if count > searched:
        yield f"layouts were searched for the {searched} of them that cost least on one device"
    if found.found and any(isinstance(step, Segment) for step in model.graph.steps):
        yield "rules were matched within iterations of repeats, not over their borders"
    yield from found.unused


def ended_notes(plan: Plan) -> Iterator[str]:
    """A note on a plan whose search was ended early."""
    if plan.ended is not None:
        yield Advice(f"the search was ended by {plan.ended}: this is the best plan that it had found")


def describe_unsearched(rules: bool) -> Iterator[str]:
    """A note on what an ended search left out, besides meshes."""
    if rules:
        yield Proof("rewritten models not searched to the end, without a bound")


_LIMIT, _NONE, _FUSED = "memory is the limit", "no plan was found that fits", "operators fused by rules"
LEAST_TOLD = 0.05
"""Smallest increase of a step, in per cent, that a note tells."""


def as_limited(plan: Plan, first: Plan) -> Plan:
    """A plan at other prices that recomputes what the `first` one does, with what is known of that plan without a
    limit.
    """
    unlimited = first.unlimited or plan.unlimited
    seconds = first.unlimited_seconds if first.passes.recomputed else plan.unlimited_seconds
    return replace(plan, unlimited=unlimited, unlimited_seconds=seconds)


def of_any_layouts(notes: Iterable[str], operators: bool) -> tuple[str, ...]:
    """The notes of a plan that also hold for other layouts, and for plans that fit the memory another way. Notes on
    rules are kept if the `operators` are the same.
    """
    own = DUALITY, _NONE, "recomputed in the backward pass", *(() if operators else (_FUSED, "rules applied"))
    kept = "resharded after the forward pass"
    return tuple(note for note in notes if not note.startswith(own) and kept not in note)


def limit_notes(plan: Plan, limit: float, seconds: Callable[[Plan], float]) -> Iterator[str]:
    """A note on a plan that was searched within the memory: what the cheapest plan without a limit holds, and how long
    its simulated step takes by `seconds`.
    """
    if plan.unlimited is None or plan.warnings:
        return
    free, taken = plan.unlimited, seconds(plan.unlimited)
    held = f"{describe_bytes(free.cost.memory.total)} of {describe_bytes(limit)}"
    more = 100 * (plan.seconds / taken - 1) if taken else 0.0
    longer = f"{percent(more)} longer" if more >= LEAST_TOLD else "no longer"
    yield Advice(
        f"{_LIMIT}: the cheapest plan of all, on the mesh {describe_mesh(free.mesh)}, would hold {held} and take "
        f"{duration(taken)} a step, and this one takes {longer}"
    )


def describe_gap(tried: Tried, many: bool) -> Proof:
    """How much cheaper a plan that fits could be at most."""
    if not (bounds := tried.bounds()):
        return Proof(f"{DUALITY}no bound is known on the plans that fit")
    over = f" over the mesh{'es' if len(bounds) > 1 else ''} {', '.join(map(describe_mesh, bounds))}" if many else ""
    first = tried.attempts[0].plan
    again = "the same" if first.passes.recomputed else "nothing"
    repeats = any(isinstance(step, Segment) for step in first.model.graph.steps)
    alike = f" and recomputes {again}" if repeats else ""
    return Proof(
        f"{DUALITY}no plan that fits{alike}{over} costs more than {percent(100 * tried.gap)} less, as the search "
        "counts seconds, and bytes choice by choice"
    )


def describe_excess(tried: Tried) -> Iterator[str]:
    """A note where no plan fits the memory: the least that a plan was found to hold."""
    least = min(one.least for one in tried.attempts)
    yield Advice(f"{_NONE} {describe_bytes(tried.limit)} a device: the least holds {describe_bytes(least)}")


def _named(meshes: Sequence[Mesh]) -> str:
    listed = first_of(list(map(describe_mesh, meshes)), _NAMED)
    return f"{len(meshes)} meshes: {listed}" if len(meshes) > 1 else f"the mesh {listed}"


def describe_unused(mesh: Mesh, machine: Machine) -> Iterator[str]:
    """A note where nodes have more GPUs than are used."""
    node = machine.node_devices
    unused = -mesh.size % node
    if unused and machine.device == "cuda":
        nodes = -(-mesh.size // node)
        which = f"a node of {node} GPUs" if nodes == 1 else f"{nodes} nodes of {node} GPUs"
        yield Advice(f"{mesh.size} device{'s' if mesh.size > 1 else ''} on {which}: {unused} stay unused")


def describe_precision(model: Model, machine: Machine) -> Iterator[str]:
    """A note where arithmetic in the model's narrower type is no faster than in float32; it names a type that is, if
    any.
    """
    faster = [name for name in PRECISIONS if machine.peak.get(name, 0) > machine.peak[FULL]]
    if machine.device == "cuda" and model.precision not in (None, FULL, *faster):
        hint = f"; with --precision {faster[0]} it is" if faster else ""
        yield Advice(f"arithmetic in {model.precision} is no faster than in {FULL} on {machine.name}{hint}")


def _divides(graph: PlannedGraph) -> bool:
    return any(isinstance(step, PlannedNode) and step.typed.divided for step in graph.steps)


def _graphs(graph: PlannedGraph) -> Sequence[PlannedGraph]:
    found = [graph]
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                found += _graphs(run.body)
    return found
