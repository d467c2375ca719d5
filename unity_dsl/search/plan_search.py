"""Finds the cheapest plan of a strategy for a model, on any of some meshes of a machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from random import Random
from typing import TYPE_CHECKING

from ..graph.axis_names import named_axes
from ..graph.graph import Graph, Model, Node, Segment
from ..graph.layout import Mesh
from ..graph.layout_typing import Along, Theorems, type_operator
from ..graph.plan import Plan
from ..index.library import Library
from ..machine.conversion_model import ConversionModel
from ..machine.machine import Machine
from ..machine.mesh import all_meshes, build_mesh, describe_mesh
from ..rules.sharding_theorems import ShardingTheorems
from ..syntax.diagnostic import InputError, fail, suggest
from ..syntax.parse_rules import RuleDecl
from .accounting.plan_cost import plan_cost
from .accounting.undivided_sizes import describe_refusals
from .accounting.weighed_plan import weighed
from .choices.operator_options import ProvedTable
from .choices.restriction import Place, Restriction, places
from .gathered_pins import describe_gathered
from .layout_pins import Pin, apply_pins, matching, why_not_produced, without_unnamed_cuts
from .layout_problem.model_problem import Prices, prices_on
from .layout_problem.plan_assembly import assemble
from .layout_problem.variable_meaning import Crowded, Impossible, Meaning
from .meshes.mesh_joining import joined_mesh
from .meshes.mesh_search import Outcome, is_large, search_around, search_meshes
from .meshes.near_search import Found, Near, Task, near_plan
from .model_variants.layouts_of_a_plan import GAIN, Layouts
from .model_variants.rewritten_model import Variant
from .model_variants.variant_enumeration import SingleDevice, Variants, variants
from .plan_notes import describe_outcome, describe_unused
from .strategies import AUTO, RANDOM, STRATEGIES, random

if TYPE_CHECKING:
    from ..rules.graph_match import Match

__all__ = ["RANDOM", "STRATEGIES", "meshes_for", "random", "search"]


SEARCHED = 8
"""Of the models that rules make, those whose layouts are searched: the best on one device."""
FUSED = 0.5
"""Of the plans drawn by chance, those of models in which operators are fused wherever they can be."""
_SEED = re.compile(r"[0-9]{1,18}")


def meshes_for(machine: Machine, devices: int, shape: tuple[int, ...] | None, strategy: str) -> tuple[Mesh, ...]:
    """The meshes that a plan may be on: the one of a given shape; without one, all for `auto`, and that of the prime
    factors for other strategies. Raises E302 and E303.
    """
    if shape is None and strategy == AUTO:
        return all_meshes(machine, devices)
    return (build_mesh(machine, devices, shape),)


def search(
    model: Model,
    meshes: Mesh | Sequence[Mesh],
    machine: Machine,
    library: Library,
    strategy: str = "auto",
    pins: Mapping[str, Pin] = {},
    rules: Sequence[RuleDecl] = (),
    theorems: Theorems | None = None,
    fusions: Sequence[RuleDecl] = (),
) -> Plan:
    """The cheapest plan of a strategy on any of some meshes, with the pins kept.

    Pins are globs of weights and values with a kind for each mesh axis, or one for all: a pin of several kinds leaves
    the meshes with as many axes.
    The rules, which must be proved, make other models of the same meaning, and the plan is that of the cheapest on the
    mesh of the given model's plan; one that lacks a pinned value is not considered. The `fusions`, proved as well, are
    then applied wherever that costs less in the layouts of this plan. `single` is what programs are compared with, and
    uses no rules; `random:SEED` draws a plan, of a model drawn from those that rules and fusions make.
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
    every, pins, notes = _searchable((meshes,) if isinstance(meshes, Mesh) else meshes, pins)
    notes = (*notes, *describe_unused(every[0], machine))
    wanted = _Wanted(machine, library, theorems or ShardingTheorems(library), strategy, pins)
    if seed is not None:
        drawn = _drawn(model, every[0], wanted, seed, rules, fusions)
        return _finished(replace(drawn, notes=(*notes, *drawn.notes)), wanted)
    given = _plan(model, every, wanted)
    assert given is not None, "any cost is of use"
    if strategy == "single":
        return _finished(replace(given, notes=(*given.notes, *notes)), wanted)
    best = _changed(given, every, rules, wanted) if rules else given
    best = _fused(best, every, fusions, wanted)
    return _finished(replace(best, notes=(*best.notes, *notes)), wanted)


def _changed(given: Plan, every: Sequence[Mesh], rules: Sequence[RuleDecl], wanted: _Wanted) -> Plan:
    """The cheapest plan of the models that rules make, on the mesh of the given model's plan."""
    machine, library, model = wanted.machine, wanted.library, given.model
    found = variants(model, rules, library, SingleDevice(machine, library).seconds)
    best = given
    for variant in found.found[:SEARCHED]:
        best = _better(variant, best, given, wanted)
    told = [*_describe_rules(best, found, model)]
    if found.found and len(every) > 1:
        told.append(f"layouts of models made by rules were searched on {describe_mesh(given.mesh)} only")
    return replace(best, notes=(*best.notes, *told), considered=1 + len(found.found))


def _fused(given: Plan, every: Sequence[Mesh], fusions: Sequence[RuleDecl], wanted: _Wanted) -> Plan:
    """The plan with every fusion that costs less in its layouts, searched again on its mesh: all of it, or what is near
    that plan where the mesh has many.
    """
    if not fusions:
        return given
    from ..rules.fusing import fused

    layouts = Layouts(given, wanted.priced(given.mesh).options, wanted.machine)

    def accepts(match: Match, before: Model, after: Model) -> bool:
        return _keeps(after, wanted.pins, given.model) and layouts.accept(match, before, after)

    model, applied = fused(given.model, fusions, wanted.library, accepts)
    if not applied:
        return given
    start = _large_start(given, wanted)
    best = _better(Variant(model, (*given.rules, *applied)), given, given, wanted, start)
    if best is given:
        return given
    times = Counter(used.rule for used in applied)
    named = ", ".join(f"`{rule}`" + (f" {count} times" if count > 1 else "") for rule, count in times.items())
    note = f"operators fused by rules: {named}"
    if start is not None:
        note += "; layouts were searched again near the plan before, and what is said above is of the model before"
    elif len(every) == 1:
        return replace(best, notes=(*best.notes, note), considered=given.considered + 1)
    else:
        note += "; what is said above of meshes is of the model before"
    return replace(best, notes=(*given.notes, note), considered=given.considered + 1)


def _large_start(given: Plan, wanted: _Wanted) -> Found | None:
    """What the search found for a model, where searching one like it as a whole would take long."""
    found = wanted.found.get(given.mesh)
    own = found is not None and found.problem.meaning.graph is given.model.graph
    return found if found is not None and own and is_large(found) else None


@dataclass(frozen=True)
class _Wanted:
    """What plans are searched for: those of a strategy with pins, on a machine.

    `prices` and the plans that were `found` are kept for other models, whose search starts near these.
    """

    machine: Machine
    library: Library
    theorems: Theorems
    strategy: str
    pins: Mapping[str, Pin]
    prices: dict[Mesh, Prices] = field(default_factory=dict)
    found: dict[Mesh, Found] = field(default_factory=dict)
    proved: ProvedTable = field(default_factory=dict)

    @cached_property
    def searched(self) -> Library:
        """Without the ops that no pin names and whose slices are as good as those of `partition` to any operator."""
        return without_unnamed_cuts(self.library, self.pins)

    def priced(self, mesh: Mesh) -> Prices:
        if mesh not in self.prices:
            self.prices[mesh] = prices_on(mesh, self.machine, self.searched, self.theorems, self.proved)
        return self.prices[mesh]

    def allowed(self, model: Model, mesh: Mesh, pins: Mapping[str, Pin]) -> Restriction:
        """Raises E305 to E308 for pins, E309 for a strategy, that do not fit the model on this mesh."""
        return apply_pins(STRATEGIES[self.strategy](model, mesh, self.library), pins, model, mesh, self.library)


def _finished(plan: Plan, wanted: _Wanted) -> Plan:
    """The plan with what it holds on each device, and its mesh axes named after what they do."""
    return weighed(replace(plan, mesh=named_axes(plan.graph, plan.mesh)), wanted.machine, wanted.library)


def _plan(
    model: Model, meshes: Sequence[Mesh], wanted: _Wanted, below: float = inf, start: Found | None = None
) -> Plan | None:
    """The cheapest plan of one model, or None where none costs less than `below`. With the `start` of a model of other
    operators, that of a local search from its layouts. Raises as `search`.
    """
    library, pins = wanted.library, wanted.pins
    even = {name: pin for name, pin in pins.items() if len(pin) == 1}
    task = Task(model, wanted.priced, lambda mesh: wanted.allowed(model, mesh, pins))
    aid = (
        Task(model, wanted.priced, lambda mesh: wanted.allowed(model, mesh, even)) if wanted.strategy == AUTO else None
    )
    known = [wanted.found[mesh] for mesh in meshes if mesh in wanted.found]
    outcome = search_meshes(task, meshes, below, aid, known) if start is None else search_around(task, start, below)
    if outcome.found is None:
        if outcome.bounds:
            return None
        raise _refused(outcome, task, wanted) from None
    plan = _made(outcome.found, model, wanted)
    told: tuple[str, ...] = ()
    if len(meshes) > 1:
        plan, told = _with_gathers(plan, outcome, task, wanted)
    wanted.found[plan.mesh] = outcome.found
    searched = describe_outcome(outcome, meshes, plan.graph, bool(pins)) if wanted.strategy == AUTO else ()
    notes = (
        *searched,
        *told,
        *describe_gathered(pins, model, plan.graph),
        *describe_refusals(model, plan.mesh, library),
    )
    return replace(plan, notes=notes)


def _made(found: Found, model: Model, wanted: _Wanted) -> Plan:
    """The plan that was found, without notes."""
    problem, best = found.problem, found.best
    assert best.plan is not None, "what is found has a plan"
    graph = assemble(problem, best.plan, found.mesh, model)
    conversions = problem.prices.conversions
    cost = plan_cost(graph, problem.meaning, conversions, model.loss)
    return Plan(model, found.mesh, wanted.machine.name, wanted.strategy, graph, cost, conversions)


def _with_gathers(plan: Plan, outcome: Outcome, task: Task, wanted: _Wanted) -> tuple[Plan, tuple[str, ...]]:
    """The plan, or where it has to gather weights once more in the backward pass, the one of another mesh that costs
    less with what it gathers. `outcome` is made to tell of it.
    """
    whole = weighed(plan, wanted.machine, wanted.library)
    if not whole.gathered_again:
        return plan, ()
    least, raw = whole.cost.seconds, outcome.cost
    for other in _others(outcome, task, least):
        made = _made(other, plan.model, wanted)
        if (seconds := weighed(made, wanted.machine, wanted.library).cost.seconds) < least:
            plan, least = made, seconds
            outcome.found, outcome.cost = other, other.best.cost
    if outcome.cost == raw:
        return plan, ()
    more = 100 * (1 - raw / outcome.cost)
    return plan, (f"a plan that costs {more:.2g} % less costs more with the weights that it would gather again",)


def _others(outcome: Outcome, task: Task, least: float) -> Iterator[Found]:
    """The best plans of other meshes that cost less than `least`, the cheapest first."""
    assert outcome.found is not None
    every: list[tuple[float, Mesh, Found | Near]] = [(found.best.cost, found.mesh, found) for found in outcome.coarse]
    every += [(near.cost, mesh, near) for mesh, near in outcome.near.items()]
    for cost, mesh, known in sorted(every, key=lambda entry: entry[0]):
        if cost < least and mesh != outcome.found.mesh:
            found = near_plan(task, mesh, known.held, inf, rounds=1) if isinstance(known, Near) else known
            if found is not None and found.best.plan is not None:
                yield found


def _refused(outcome: Outcome, task: Task, wanted: _Wanted) -> InputError:
    """Why there is no plan: the reason on the first mesh."""
    mesh, reason = next(iter(outcome.refused.items()))
    if isinstance(reason, InputError):
        return reason
    return _explained(reason, task.allowed(mesh), task.model, mesh, wanted.library, wanted.strategy)


def _seed(strategy: str) -> int | None:
    """The seed of `random:7`, 0 where none is given; None for any other strategy."""
    name, colon, digits = strategy.partition(":")
    if name != RANDOM or (colon and not _SEED.fullmatch(digits)):
        return None
    return int(digits) if colon else 0


def _drawn(
    model: Model,
    mesh: Mesh,
    wanted: _Wanted,
    seed: int,
    rules: Sequence[RuleDecl],
    fusions: Sequence[RuleDecl],
) -> Plan:
    """A plan drawn by chance, the same for the same seed, of the model or one that rules make and that keeps pins."""
    machine, library, pins = wanted.machine, wanted.library, wanted.pins
    rng = Random(seed)
    found = variants(model, rules, library, SingleDevice(machine, library).seconds).found if rules else ()
    chosen = rng.choice([Variant(model), *(variant for variant in found if _keeps(variant.model, pins, model))])
    if fusions and rng.random() < FUSED:
        from ..rules.fusing import fused

        order = rng.sample(fusions, len(fusions))
        made, applied = fused(chosen.model, order, library, lambda _, before, after: _keeps(after, pins, before))
        chosen = Variant(made, (*chosen.rules, *applied))
    made = chosen.model
    restriction = apply_pins(Restriction(), pins, made, mesh, library)
    try:
        graph = random(made, mesh, library, rng, wanted.theorems, restriction)
    except Impossible as reason:
        raise _explained(reason, restriction, made, mesh, library, wanted.strategy) from None
    conversions = ConversionModel(mesh, machine, library)
    cost = plan_cost(graph, _all_priced(made.graph), conversions, made.loss)
    note = f"drawn by chance, seed {seed}"
    strategy = wanted.strategy
    return Plan(made, mesh, machine.name, strategy, graph, cost, conversions, (note,), chosen.rules, 1 + len(found))


def _keeps(changed: Model, pins: Mapping[str, Pin], given: Model) -> bool:
    """Whether a changed model has what is pinned in the given one."""
    try:
        return not _pinned(pins, given) - _pinned(pins, changed)
    except InputError:
        return False


def _all_priced(graph: Graph) -> Meaning:
    """A graph in which no value is taken to be free."""
    return Meaning(graph, bodies=[_all_priced(step.body) for step in graph.steps if isinstance(step, Segment)])


def _better(variant: Variant, best: Plan, given: Plan, wanted: _Wanted, start: Found | None = None) -> Plan:
    """The plan of a changed model, where it costs less than the best so far and keeps what is pinned; `start` as for
    `_plan`.
    """
    below = best.cost.seconds * (1 - GAIN)
    try:
        if _pinned(wanted.pins, given.model) - _pinned(wanted.pins, variant.model):
            return best
        found = _plan(variant.model, (given.mesh,), wanted, below, start)
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


def _searchable(
    meshes: Sequence[Mesh], pins: Mapping[str, Pin]
) -> tuple[Sequence[Mesh], Mapping[str, Pin], tuple[str, ...]]:
    """The meshes that pins leave; where one is given that has too many axes, these are joined, and the pins' kinds."""
    if len(meshes) > 1:
        axes = {len(pin) for pin in pins.values() if len(pin) > 1}
        return [mesh for mesh in meshes if axes <= {len(mesh.axes)}] or meshes, pins, ()
    (mesh,) = meshes
    small, blocks = joined_mesh(mesh)
    if small == mesh:
        return meshes, pins, ()
    joined = {}
    for name, pin in pins.items():
        if len(pin) == len(mesh.axes):
            for block in blocks:
                if len({pin[axis] for axis in block}) > 1:
                    named = ", ".join(mesh.axes[axis].name for axis in block)
                    raise fail(
                        "E305", f"the pin of `{name}` treats the mesh axes {named} differently, which are joined"
                    )
            pin = tuple(pin[block[0]] for block in blocks)
        joined[name] = pin
    note = f"searched on a mesh of {describe_mesh(small)}: the {describe_mesh(mesh)} has too many layouts"
    return (small,), joined, (note,)


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
