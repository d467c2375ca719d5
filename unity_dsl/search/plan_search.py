"""Finds the cheapest plan of a strategy for a model, a mesh and a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from random import Random

from ..graph.graph import Graph, Model, Node, Segment
from ..graph.layout import Mesh
from ..graph.layout_typing import Along, Theorems, type_operator
from ..graph.plan import Memory, Plan, PlannedGraph, PlannedNode, PlannedSegment
from ..index.library import Library
from ..machine.conversion_model import ConversionModel
from ..machine.machine import Machine
from ..rules.sharding_theorems import ShardingTheorems
from ..syntax.diagnostic import InputError, fail, suggest
from ..syntax.parse_rules import RuleDecl
from .accounting.memory_prediction import kept_gathered, memory_warnings, predict_memory
from .accounting.plan_cost import conversion_seconds, plan_cost
from .accounting.undivided_sizes import describe_refusals
from .choices.restriction import Place, Restriction, places
from .exact_search.bounded_search import Optimum
from .gathered_pins import describe_gathered
from .layout_pins import Pin, apply_pins, matching, why_not_produced
from .layout_problem.axis_placement import find_plan
from .layout_problem.model_problem import Prices, prices_on
from .layout_problem.plan_assembly import assemble
from .layout_problem.variable_meaning import Crowded, Impossible, Meaning
from .mesh_joining import joined_mesh
from .model_variants.rewritten_model import Variant
from .model_variants.variant_enumeration import SingleDevice, Variants, variants
from .strategies import AUTO, RANDOM, STRATEGIES, random

__all__ = ["RANDOM", "STRATEGIES", "random", "search"]


SEARCHED = 8
"""Of the models that rules make, those whose layouts are searched: the best on one device."""
_SEED = re.compile(r"[0-9]{1,18}")
_GAIN = 1e-9
"""Of the cost: by so much a changed model must be cheaper than the given one."""


def search(
    model: Model,
    mesh: Mesh,
    machine: Machine,
    library: Library,
    strategy: str = "auto",
    pins: Mapping[str, Pin] = {},
    rules: Sequence[RuleDecl] = (),
    theorems: Theorems | None = None,
) -> Plan:
    """The cheapest plan of a strategy with the pins kept. Pins are globs of weights and values with their kinds.

    The rules, which must be proved, make other models of the same meaning, and the plan is that of the cheapest; one
    that lacks a pinned value is not considered. `single` is what programs are compared with, and uses no rules;
    `random:SEED` draws a plan, of a model drawn from those that the rules make.
    Operators have the configurations that `theorems` proves, by default those with a certificate and those that the
    prover proves now. Raises E305 to E308 for pins, E309 and E310 for strategies, that do not fit the model.
    """
    seed = _seed(strategy)
    if strategy not in STRATEGIES and seed is None:
        known = (*STRATEGIES, RANDOM)
        hint = (
            suggest(strategy, known)
            or f"there are {', '.join(known)}; `{RANDOM}:7` draws by the seed 7 (at most 18 digits)"
        )
        raise fail("E310", f"there is no strategy called `{strategy}`", help=hint)
    mesh, pins, notes = _searchable(mesh, pins)
    if seed is not None:
        drawn = _drawn(model, mesh, machine, library, strategy, seed, pins, rules, theorems)
        return _weighed(replace(drawn, notes=(*notes, *drawn.notes)), machine, library)
    prices = prices_on(mesh, machine, library, theorems or ShardingTheorems(library))
    given = _plan(model, prices, library, strategy, pins)
    assert given is not None, "any cost is of use"
    if not rules or strategy == "single":
        return _weighed(replace(given, notes=(*notes, *given.notes)), machine, library)
    found = variants(model, rules, library, SingleDevice(machine, library).seconds)
    best = given
    for variant in found.found[:SEARCHED]:
        best = _better(variant, best, given, prices, library, pins)
    told = _describe_rules(best, found, model)
    best = replace(best, notes=(*notes, *best.notes, *told), considered=1 + len(found.found))
    return _weighed(best, machine, library)


def _weighed(plan: Plan, machine: Machine, library: Library) -> Plan:
    """The plan with what it holds on each device, and a warning where that is more than there is.

    Gathered weights are kept for the backward pass, unless there is room for the plan without them alone.
    """
    memory = predict_memory(plan.model, plan.graph, plan.mesh, library)
    if memory.total > machine.memory_bytes:
        plan, memory = _gathered_again(plan, memory, machine, library)
    cost = replace(plan.cost, memory=memory)
    return replace(plan, cost=cost, warnings=tuple(memory_warnings(memory, machine)))


def _gathered_again(plan: Plan, memory: Memory, machine: Machine, library: Library) -> tuple[Plan, Memory]:
    """The plan with weights gathered once more in the backward pass, where it fits the machine's memory then."""
    mesh, conversions = plan.mesh, ConversionModel(plan.mesh, machine, library)
    less = predict_memory(plan.model, plan.graph, mesh, library, gathered_again=True)
    if less.total > machine.memory_bytes:
        return plan, memory
    again = kept_gathered(plan.graph, mesh, library)
    seconds = sum(times * conversion_seconds(kept, layout, conversions) for kept, layout, times in again)
    note = (
        f"gathered weights are not kept for the backward pass, which gathers them again: "
        f"{(memory.total - less.total) / 1e9:.3g} GB less a device, {seconds * 1e3:.3g} ms more a step"
    )
    cost = replace(plan.cost, communication=plan.cost.communication + seconds)
    return replace(plan, cost=cost, notes=(*plan.notes, note), gathered_again=True), less


def _plan(
    model: Model, prices: Prices, library: Library, strategy: str, pins: Mapping[str, Pin], below: float = inf
) -> Plan | None:
    """The cheapest plan of one model, or None where none costs less than `below`. Raises as `search`."""
    mesh, machine = prices.mesh, prices.machine
    restriction = apply_pins(STRATEGIES[strategy](model, mesh, library), pins, model, mesh, library)
    try:
        found = find_plan(model, prices, restriction, below)
    except Impossible as reason:
        raise _explained(reason, restriction, model, mesh, library, strategy) from None
    if found is None:
        return None
    problem, best = found
    assert best.plan is not None, "what is found has a plan"
    graph = assemble(problem, best.plan, mesh, model)
    cost = plan_cost(graph, problem.meaning, prices.conversions, model.loss)
    searched = _describe(best, graph, mesh, bool(pins)) if strategy == AUTO else ()
    notes = (*searched, *describe_gathered(pins, model, graph), *describe_refusals(model, mesh, library))
    return Plan(model, mesh, machine.name, strategy, graph, cost, prices.conversions, notes)


def _seed(strategy: str) -> int | None:
    """The seed of `random:7`, 0 where none is given; None for any other strategy."""
    name, colon, digits = strategy.partition(":")
    if name != RANDOM or (colon and not _SEED.fullmatch(digits)):
        return None
    return int(digits) if colon else 0


def _drawn(
    model: Model,
    mesh: Mesh,
    machine: Machine,
    library: Library,
    strategy: str,
    seed: int,
    pins: Mapping[str, Pin],
    rules: Sequence[RuleDecl],
    theorems: Theorems | None,
) -> Plan:
    """A plan drawn by chance, the same for the same seed, of the model or one that rules make and that keeps pins."""
    rng = Random(seed)
    found = variants(model, rules, library, SingleDevice(machine, library).seconds).found if rules else ()
    chosen = rng.choice([Variant(model), *(variant for variant in found if _keeps(variant, pins, model))])
    made = chosen.model
    restriction = apply_pins(Restriction(), pins, made, mesh, library)
    try:
        graph = random(made, mesh, library, rng, theorems or ShardingTheorems(library), restriction)
    except Impossible as reason:
        raise _explained(reason, restriction, made, mesh, library, strategy) from None
    conversions = ConversionModel(mesh, machine, library)
    cost = plan_cost(graph, _all_priced(made.graph), conversions, made.loss)
    note = f"drawn by chance, seed {seed}"
    return Plan(made, mesh, machine.name, strategy, graph, cost, conversions, (note,), chosen.rules, 1 + len(found))


def _keeps(variant: Variant, pins: Mapping[str, Pin], given: Model) -> bool:
    try:
        return not _pinned(pins, given) - _pinned(pins, variant.model)
    except InputError:
        return False


def _all_priced(graph: Graph) -> Meaning:
    """A graph in which no value is taken to be free."""
    return Meaning(graph, bodies=[_all_priced(step.body) for step in graph.steps if isinstance(step, Segment)])


def _better(
    variant: Variant, best: Plan, given: Plan, prices: Prices, library: Library, pins: Mapping[str, Pin]
) -> Plan:
    """The plan of a changed model, where it costs less than the best so far and keeps what is pinned."""
    below = best.cost.seconds * (1 - _GAIN)
    try:
        if _pinned(pins, given.model) - _pinned(pins, variant.model):
            return best
        found = _plan(variant.model, prices, library, best.strategy, pins, below)
    except InputError:
        return best  # a pin or the strategy does not fit the changed model
    if found is None or found.cost.seconds >= below:
        return best
    return replace(found, rules=variant.rules)


def _pinned(pins: Mapping[str, Pin], model: Model) -> set[str]:
    """The paths of the weights and values that are pinned."""
    every = list(places(model))
    return {place.path for name in pins for place in matching(name, every)}


def _describe_rules(best: Plan, found: Variants, model: Model) -> Iterator[str]:
    """What the rules did, and where a bound was met."""
    applied = ", ".join(f"`{used.rule}` at {used.place}" for used in best.rules)
    count = len(found.found)
    looked = f"{count} model{'s' if count > 1 else ''} made by rules compared with the given one"
    if count:
        yield f"rules applied: {applied}; {looked}" if applied else f"no rule makes the model cheaper; {looked}"
    else:
        yield "no rule fits the model"
    if not found.complete:
        yield "the rules make more models than were looked at"
    if count > SEARCHED:
        yield f"layouts were searched for the {SEARCHED} of them that cost least on one device"
    if found.found and any(isinstance(step, Segment) for step in model.graph.steps):
        yield "rules were matched within iterations of repeats, not over their borders"
    yield from found.unused


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


def _why_undivided(node: Node, mesh: Mesh, library: Library) -> str:
    """Why an operator is not divided along the leading axis of an operand, where it is not."""
    leading = dict.fromkeys(operand.dims[0][0] for operand in node.instance.inputs if operand.dims and operand.dims[0])
    for axis in leading:
        typed = type_operator(node.instance, (Along(axis),) * len(mesh.axes), mesh, library)
        reason = typed if isinstance(typed, str) else ShardingTheorems(library).why_not(node.instance, Along(axis))
        if reason is not None:
            return f"`{node.instance.name}` is not divided along `{axis}`: {reason}"
    return ""


def _explained(
    reason: Impossible, restriction: Restriction, model: Model, mesh: Mesh, library: Library, strategy: str
) -> InputError:
    """Which pin, or the strategy, leaves nothing of an operator or a value, and why."""
    if isinstance(reason, Crowded):
        found = next((place for place in places(model) if place.path == reason.path), None)
        value = f"`{reason.path}`" if reason.path else "a value"
        text = f"as pinned, the readers of {value} ask for more than three layouts at once"
        return fail("E311", text, found.value.span if found is not None else None)
    makers: list[Place] = [
        place
        for place in places(model)
        if place.path in restriction.produced and (place.path == reason.path or (place.node is reason.node is not None))
    ]
    if not makers:
        span = reason.node.span if reason.node is not None else None
        help = "" if reason.node is None else _why_undivided(reason.node, mesh, library)
        return fail("E309", f"`{strategy}` leaves no configuration of `{reason.path}`", span, help=help)
    place = makers[0]
    layout = restriction.produced[place.path]
    possible = list(reason.options.typed) if reason.options is not None else []
    why = "nothing before it leaves it so"
    if place.node is not None:
        why = why_not_produced(layout, place, mesh, library, possible)
    return fail("E307", f"`{place.path}` cannot be {layout}: {why}", place.value.span)


def _describe(best: Optimum, graph: PlannedGraph, mesh: Mesh, pinned: bool) -> Sequence[str]:
    """What a reader of a searched plan has to know: what is exact, and where a bound was met."""
    if best.exact:
        found = "optimal for the additive cost, with at most two layouts besides the produced one of every value"
        found += ", among the plans that keep the pins" if pinned else ""
    else:
        gap = 100 * (1 - best.bound / best.cost)
        found = f"not proved optimal: the tables grew too large; no plan is more than {gap:.2g} % cheaper"
    notes = [found]
    full = sum(len(planned.materialised) == 2 for part in _graphs(graph) for planned in part.values.values())
    if full:
        values = "1 value is" if full == 1 else f"{full} values are"
        notes.append(f"{values} held in two further layouts, the most that is considered")
    if mesh.size > 1 and not any(_divides(part) for part in _graphs(graph)):
        notes.append("no operator is divided: at these sizes communication would cost more than it saves")
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
