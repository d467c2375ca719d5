"""The search: from a model, a mesh and a machine to the cheapest plan of a strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Cost, Plan, PlannedGraph, PlannedNode, PlannedSegment
from ..graph.typing import Theorems
from ..index.library import Library
from ..machine.machine import Machine
from ..rules.theorems import ShardingTheorems
from ..syntax.diagnostic import InputError, fail, suggest
from .assemble import assemble
from .coarse import coarse_domains
from .cost import plan_cost
from .joined_mesh import joined_mesh
from .optimise import Optimum, optimise
from .part import everything
from .pin import Pin, apply_pins, why_not_produced
from .problem import Impossible, build_problem
from .restriction import Place, Restriction, places
from .strategies import STRATEGIES

__all__ = ["STRATEGIES", "search"]


def search(
    model: Model,
    mesh: Mesh,
    machine: Machine,
    library: Library,
    strategy: str = "auto",
    pins: Mapping[str, Pin] = {},
    theorems: Theorems | None = None,
) -> Plan:
    """The cheapest plan of a strategy with the pins kept. Pins are globs of weights and values with their kinds.

    Operators have the configurations that `theorems` proves, by default those with a certificate and those that the
    prover proves now. Raises E305 to E308 for pins, E309 and E310 for strategies, that do not fit the model.
    """
    if strategy not in STRATEGIES:
        hint = suggest(strategy, STRATEGIES) or f"there are {', '.join(STRATEGIES)}"
        raise fail("E310", f"there is no strategy called `{strategy}`", help=hint)
    mesh, pins, notes = _searchable(mesh, pins)
    restriction = apply_pins(STRATEGIES[strategy](model, mesh, library), pins, model, mesh, library)
    try:
        problem = build_problem(model, mesh, machine, library, theorems or ShardingTheorems(library), restriction)
    except Impossible as reason:
        raise _explained(reason, restriction, model, mesh, library, strategy) from None
    best = optimise(problem.part, everything(problem.part), coarse_domains(problem))
    assert best is not None, "every operator has an option, and every layout converts to any other"
    graph = assemble(problem, best.plan, mesh, model.loss, model.outputs)
    cost = plan_cost(graph, problem.meaning, mesh, machine, model.loss)
    notes = (*notes, *_describe(best, cost, graph, mesh, machine))
    return Plan(model, mesh, machine.name, strategy, graph, cost, notes)


def _searchable(mesh: Mesh, pins: Mapping[str, Pin]) -> tuple[Mesh, Mapping[str, Pin], tuple[str, ...]]:
    """Joins mesh axes where there are too many, and the pins' kinds with them."""
    small, blocks = joined_mesh(mesh)
    if small == mesh:
        return mesh, pins, ()
    joined = {}
    for name, pin in pins.items():
        if len(pin) == len(mesh.axes):
            for block in blocks:
                if len({pin[axis] for axis in block}) > 1:
                    axes = ", ".join(mesh.axes[axis].name for axis in block)
                    raise fail("E305", f"the pin of `{name}` treats the mesh axes {axes} differently, which are joined")
            pin = tuple(pin[block[0]] for block in blocks)
        joined[name] = pin
    before, after = (" x ".join(map(str, found.degrees)) for found in (mesh, small))
    return small, joined, (f"searched on a mesh of {after}: the {before} of all prime factors has too many layouts",)


def _explained(
    reason: Impossible, restriction: Restriction, model: Model, mesh: Mesh, library: Library, strategy: str
) -> InputError:
    """Which pin, or the strategy, leaves nothing of an operator, and why."""
    makers: list[Place] = [
        place
        for place in places(model)
        if place.path in restriction.produced and (place.path == reason.path or (place.node is reason.node is not None))
    ]
    if not makers:
        span = reason.node.span if reason.node is not None else None
        return fail("E309", f"`{strategy}` leaves no configuration of `{reason.path}`", span)
    place = makers[0]
    layout = restriction.produced[place.path]
    possible = list(reason.options.typed) if reason.options is not None else []
    why = "nothing before it leaves it so"
    if place.node is not None:
        why = why_not_produced(layout, place, mesh, library, possible)
    return fail("E307", f"`{place.path}` cannot be {layout}: {why}", place.value.span)


def _describe(best: Optimum, cost: Cost, graph: PlannedGraph, mesh: Mesh, machine: Machine) -> Sequence[str]:
    """What a reader of the plan has to know: what is exact, and where a bound was met."""
    if best.exact:
        found = "optimal for the additive cost, with at most two layouts besides the produced one of every value"
    else:
        gap = 100 * (1 - best.bound / best.cost)
        found = f"not proved optimal: the tables grew too large; no plan is more than {gap:.2g} % cheaper"
    notes = [found]
    full = sum(len(planned.materialised) == 2 for part in _graphs(graph) for planned in part.values.values())
    if full:
        notes.append(f"{full} values are held in two further layouts, the most that is considered")
    if mesh.size > 1 and not any(_divides(part) for part in _graphs(graph)):
        notes.append("no operator is divided: at these sizes communication would cost more than it saves")
    if cost.memory > machine.memory_bytes:
        held, room = cost.memory / 1e9, machine.memory_bytes / 1e9
        notes.append(f"needs about {held:.3g} GB a device, {machine.name} has {room:.3g}: memory is not minimised yet")
    return notes


def _divides(graph: PlannedGraph) -> bool:
    return any(isinstance(step, PlannedNode) and step.typed.divided for step in graph.steps)


def _graphs(graph: PlannedGraph) -> Sequence[PlannedGraph]:
    found = [graph]
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                found += _graphs(run.body)
    return found
