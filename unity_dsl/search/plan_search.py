"""Finds the cheapest plan of a strategy for a model, on any of some meshes of a machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING

from ..graph.axis_names import named_axes
from ..graph.graph import Graph, Model, Segment
from ..graph.layout import Layout, Mesh
from ..graph.plan import BatchDivision, Plan
from ..graph.typed_configurations import Theorems
from ..index.library import Library
from ..machine.conversion_model import ConversionModel
from ..machine.machine import Machine
from ..machine.mesh import all_meshes, build_mesh, describe_mesh
from ..rules.sharding_theorems import ShardingTheorems
from ..rules.shipped_rules import ShippedRules
from ..syntax.diagnostic import InputError
from ..syntax.parse_rules import RuleDecl
from .accounting.kept_iterations import told_kept
from .accounting.plan_cost import plan_cost
from .accounting.recomputation import outermost
from .accounting.unproved_divisions import with_undivided
from .accounting.weighed_plan import counted, recomputing, within_memory
from .choices.restriction import Restriction
from .gathered_pins import describe_gathered
from .joint_layouts import JointLayouts
from .layout_pins import Pin, apply_pins, pinned_paths
from .layout_problem.variable_meaning import Impossible, Meaning
from .memory_limit.least_bytes import LeastBytes
from .memory_limit.limited_search import LimitedSearch, Searched, beyond_limit, within_limit
from .memory_limit.multiplier_search import ENOUGH
from .memory_limit.stored_bytes import StoredBytes
from .meshes.mesh_search import Aside, Outcome, is_beyond_proof, is_large, search_around, search_meshes
from .meshes.near_search import Found, Task
from .model_variants.layouts_of_a_plan import GAIN, Layouts
from .model_variants.rewritten_model import Variant
from .model_variants.variant_enumeration import SingleDevice, variants
from .plan_notes import describe_outcome, describe_precision, describe_unsearched, describe_unused, describe_variants
from .refereed_plans import RefereedPlans, shortest_of_ties
from .refusals import explain_refusal
from .search_end import SearchEnded, check_end, why_ended
from .search_progress import tell_stage
from .searchable_meshes import searchable
from .shortest_beside import Later, limited_beside, shortest_beside
from .strategies import AUTO, RANDOM, STRATEGIES, Strategy, check_strategy, random, seed_of
from .strategy_space import algebras_for, found_of, in_same_layouts, space_of
from .wanted import Referee
from .wanted import Wanted as _Wanted
from .wanted import made as _made

if TYPE_CHECKING:
    from ..rules.fusing import Fused
    from ..rules.graph_match import Match
    from .joint.extracted_model import Algebras

__all__ = ["RANDOM", "STRATEGIES", "meshes_for", "random", "search"]

SEARCHED = 8
"""Of the models that rules make, those whose layouts are searched: the best on one device."""
FUSED = 0.5
"""Of the plans drawn by chance, those of models in which operators are fused wherever they can be."""


def meshes_for(machine: Machine, devices: int, shape: tuple[int, ...] | None, strategy: str) -> tuple[Mesh, ...]:
    """The meshes that a plan may be on: the one of a given shape; without one, all for `auto`, those that its authors
    allow for another strategy, or else that of the prime factors. Raises E302 and E303.
    """
    if shape is None and strategy == AUTO:
        return all_meshes(machine, devices)
    chooses = STRATEGIES[strategy].meshes if shape is None and strategy in STRATEGIES else None
    if chooses is not None:
        return chooses(machine, devices)
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
    excluded: Mapping[str, frozenset[Layout]] = {},
    recompute: Collection[str] | None = (),
    kept_iterations: Mapping[str, int] | None = {},
    known: dict[Mesh, Found] | None = None,
    algebras: Algebras | None = None,
    chosen: Plan | None = None,
    referee: Referee | None = None,
    later: Later | None = None,
    imported: Strategy | None = None,
    of_use: Callable[[Plan], bool] = lambda cheapest: True,
    division: BatchDivision | None = None,
) -> Plan:
    """The cheapest plan of a strategy on any of some meshes, with the pins kept.

    Pins are globs of weights and values with a kind for all mesh axes, or one for each, of meshes with as many.
    The rules, which must be proved, make other models of the same meaning. `auto` chooses among all that they and those
    of `algebras` make, together with the layouts, on the mesh of the given model's plan. Other strategies compare some;
    the `fusions`, proved as well, are then applied wherever that costs less in the layouts of the plan. `single` is
    what programs are compared with, and uses no rules; `random:SEED` draws a plan, of a model drawn from those that
    rules and fusions make.
    Values, by their path, are neither stored nor produced in the layouts that are `excluded`, which are of one mesh.
    The backward pass runs the segments `recompute` again, by their paths, but for so many last iterations as are kept,
    if None as many as there is room for; if `recompute` is None, those for which the plan fits the memory, or fits it
    in fewer seconds. The search starts near the plans `known` of an earlier one, by their meshes, and adds its own;
    where there are any, only the limit of memory leads to other meshes than theirs. Of `algebras` the operators are
    those of the plan `chosen` by an earlier search of this model, or of one of other sizes. Of the best plans of
    several meshes that cost nearly the same `auto` takes the one that the `referee` gives the fewest seconds; of those
    next to it that keep all weights alike as well, now or `later`. A plan of another system is `imported` as a
    strategy, and `strategy` its name. Plans within the memory are searched where the cheapest of all is `of_use`; the
    model is that of a micro-batch in a `division` of the batch, if there is one, and gradients of others are held too.
    Operators have the configurations that `theorems` proves, by default those with a certificate and those that the
    prover proves now. Raises E305 to E308 for pins, E309 and E310 for strategies, that do not fit the model.
    """
    if imported is None:
        check_strategy(strategy)
    seed = seed_of(strategy) if imported is None else None
    every, pins, notes = searchable((meshes,) if isinstance(meshes, Mesh) else meshes, pins)
    notes = (*notes, *describe_unused(every[0], machine), *describe_precision(model, machine))
    again, proving = frozenset(recompute or ()), theorems or ShardingTheorems(library)
    earlier = {} if known is None else known
    gradients, referee = model.gradient_bytes, referee if strategy == AUTO else None
    wanted = _Wanted(
        machine, library, proving, strategy, pins, gradients, excluded, division, again, found=earlier, referee=referee
    )
    budget = wanted.budget
    segments = outermost(model.graph) if recompute is None and model.loss is not None else ()
    lasting = None if recompute is None else kept_iterations
    beside = outermost(model.graph) if kept_iterations is None and model.loss is not None else segments
    if seed is not None or (imported or STRATEGIES[strategy]).algorithm is not None:
        if seed is not None:
            drawn = _drawn(model, every[0], wanted, seed, rules, fusions)
        else:
            drawn = _by_algorithm(model, every, wanted, rules, fusions, imported or STRATEGIES[strategy])
        drawn = counted(recomputing(replace(drawn, notes=(*notes, *drawn.notes)), again, machine, library), budget)
        drawn = told_kept(within_memory(drawn, budget, segments), lasting, budget)
        mesh = named_axes(drawn.graph, drawn.mesh)
        return replace(drawn, mesh=mesh, exposed=machine.exposure, ended=why_ended())
    algebras = algebras or algebras_for(model, strategy, ShippedRules((), library), rules)
    substitutions = _Substitutions(
        () if strategy == "single" else rules,
        () if strategy == "single" else fusions,
        algebras if strategy == AUTO and model.loss is not None else None,
    )

    def search_at(meshes: Sequence[Mesh], priced: _Wanted, chosen: Plan | None) -> Plan | None:
        known = substitutions.algebras
        changed = None if chosen is None or known is None else _with_operators_of(chosen, model, priced, known)
        if chosen is not None and known is not None and changed is not None:
            best = _plan_as(chosen, changed, model, meshes, priced, known)
        else:
            best = _best(model, meshes, priced, substitutions)
        return None if best is None else counted(replace(best, notes=(*best.notes, *notes)), budget)

    cheapest = search_at([mesh for mesh in every if mesh in wanted.found] or every, wanted, chosen)
    assert cheapest is not None, "any cost is of use"
    found = within_memory(cheapest, budget, segments)
    if strategy == AUTO and (found.warnings or found.cost.seconds > cheapest.cost.seconds * (1 + ENOUGH)):
        limits: dict[int, _Wanted] = {}

        def searched(
            multiplier: float,
            meshes: Sequence[Mesh],
            again: frozenset[str],
            known: Mapping[Mesh, Found],
            below: float,
            busy: str,
        ) -> Searched:
            priced = wanted.limited(multiplier, again, below, busy)
            priced.found.update(known)
            plan = search_at(meshes, priced, chosen or (None if multiplier else cheapest))
            others = priced.nearly(plan) if again and plan is not None else []
            limits.update((id(one.graph), priced) for one in (plan, *others) if one is not None)
            return Searched(plan, None if plan is None else priced.found[plan.mesh], priced.bounds, others)

        if why_ended() is None and of_use(cheapest):
            stored = StoredBytes.of(model, pins.values())
            least = LeastBytes(stored, every[0].size, library, division is not None)
            if (held := least.of_plans(model, cheapest, segments)) > budget.bytes:
                found = beyond_limit(found, held, budget)
            elif of_use(least.lengthened(cheapest, segments, budget)):
                roomy = stored.roomy(every, machine.memory_bytes)
                alone = least.of(model) if chosen is None or chosen.model.parameters != model.parameters else 0.0
                out = frozenset({frozenset[str]()} if alone > budget.bytes else ())
                limited = LimitedSearch(budget, roomy, searched, segments, wanted.coarse, beyond=out, referee=referee)
                found = within_limit(cheapest, found, wanted.bounds, limited)
                priced = limits.get(id(found.graph), wanted)
                near = partial(replace, segments=beside, lasting=kept_iterations, unlimited=cheapest, referee=referee)
                found = limited_beside(told_kept(found, lasting, budget, referee), near(priced), near(wanted))
                if later is not None:
                    later.within_memory(found, [told_kept(one, lasting, budget) for one in limited.compared])
        found = replace(found, unlimited_seconds=cheapest.cost.seconds, unlimited=cheapest)
    else:
        found = told_kept(shortest_beside(found, every, wanted, later), lasting, budget, referee)
    return replace(found, mesh=named_axes(found.graph, found.mesh), exposed=machine.exposure)


def _by_algorithm(
    model: Model,
    every: Sequence[Mesh],
    wanted: _Wanted,
    rules: Sequence[RuleDecl],
    fusions: Sequence[RuleDecl],
    strategy: Strategy,
) -> Plan:
    """The plan that a strategy's own algorithm chooses. Fusions are among the rules of one with algebra; to the plan of
    any other those are applied that cost less in its layouts, which are kept.
    """
    assert strategy.algorithm is not None
    space = space_of(model, every, wanted, (*rules, *fusions) if strategy.algebra else ())
    chosen = strategy.algorithm(space)
    start = found_of(chosen)
    plan = replace(_made(start, chosen.variant.model, wanted), rules=chosen.variant.rules, notes=chosen.notes)
    if strategy.algebra:
        return plan
    better = None
    with suppress(SearchEnded):
        fused, applied = _fusions_in(plan, fusions, wanted)
        better = in_same_layouts(space.of(fused), start, chosen) if applied else None
    return plan if better is None else replace(_made(better, fused, wanted), rules=applied, notes=chosen.notes)


@dataclass(frozen=True)
class _Substitutions:
    """Rules that make other models, and those that fuse operators of a plan; or the `algebras` of both."""

    rules: Sequence[RuleDecl] = ()
    fusions: Sequence[RuleDecl] = ()
    algebras: Algebras | None = None

    @property
    def any(self) -> bool:
        return bool(self.rules or self.fusions or self.algebras)


def _best(model: Model, every: Sequence[Mesh], wanted: _Wanted, substitutions: _Substitutions) -> Plan | None:
    """The cheapest plan of a model and of those that substitutions make of it, if the model has one that costs less
    than is wanted. Raises as `search`.
    """
    algebras = None if wanted.multiplier else substitutions.algebras
    joint = None if algebras is None else JointLayouts(algebras, wanted)
    given = best = _plan(model, every, wanted, joint=joint)
    if given is None or best is None:
        return None
    with suppress(SearchEnded):
        check_end()
        if joint is not None:
            best = _joint(given, joint, wanted)
        else:
            best = _changed(given, every, substitutions.rules, wanted) if substitutions.rules else given
            best = _fused(best, every, substitutions.fusions, wanted)
    if (reason := why_ended()) is None:
        return best
    return replace(best, notes=(*best.notes, *describe_unsearched(substitutions.any)), ended=reason)


def _joint(given: Plan, joint: JointLayouts, wanted: _Wanted) -> Plan:
    """The cheapest plan of the model and of all that rules make of it, on the mesh of the given one's plan."""
    from .joint.algebra_notes import describe_algebra, refereed
    from .joint.extracted_model import extracted

    tell_stage("rules and layouts together")
    algebra, chosen = joint.algebra(given.model), joint.algebras.chosen
    check_end()
    found = joint.next_to(given, wanted.found.get(given.mesh))
    if found is None:
        chosen.setdefault(wanted.machine, given)
        return replace(given, notes=(*given.notes, *describe_algebra(algebra, None, given)))
    variant = None if found.chosen is None else extracted(algebra, found.chosen)
    start = _large_start(given, wanted)
    cheaper = _better(variant, given, given, wanted, start) if variant is not None and variant.rules else given
    best, shorter = refereed(cheaper, given, wanted.referee)
    notes = *shorter, *describe_algebra(algebra, found, best)
    best = replace(best, notes=(*given.notes, *notes), considered=algebra.extractions)
    best = shortest_of_ties(best, wanted, partial(_plan, best.model))
    chosen.setdefault(wanted.machine, best)
    return best


def _with_operators_of(chosen: Plan, model: Model, wanted: _Wanted, algebras: Algebras) -> Model | None:
    """What rules make of the given model as they did for another plan, of the same model or of one of other sizes; None
    where they do not. At a price of memory the operators of other sizes are not kept: fused ones take their operands in
    fewer layouts.
    """
    if chosen.model.parameters == model.parameters:
        return chosen.model
    return None if wanted.multiplier else algebras.applied(model, chosen.rules)


def _plan_as(
    chosen: Plan, changed: Model, model: Model, every: Sequence[Mesh], wanted: _Wanted, algebras: Algebras
) -> Plan | None:
    """The cheapest plan of a model that rules made as they did for another plan; near what other prices led to on the
    only mesh, where no search proves anything. Raises as `search`.
    """
    from .joint.algebra_notes import describe_rules

    known = None if wanted.multiplier or len(every) > 1 else wanted.found_of(changed, every[0])
    best = _plan(changed, every, wanted, start=known if known is not None and is_beyond_proof(known) else None)
    if best is None:
        return None
    notes = (*best.notes, *describe_rules(algebras.looked_at(model), chosen.rules))
    return replace(best, notes=notes, rules=chosen.rules, considered=chosen.considered)


def _changed(given: Plan, every: Sequence[Mesh], rules: Sequence[RuleDecl], wanted: _Wanted) -> Plan:
    """The cheapest plan of the models that rules make, on the mesh of the given model's plan."""
    machine, library, model = wanted.machine, wanted.library, given.model
    found = variants(model, rules, library, SingleDevice(machine, library).seconds)
    best = given
    for variant in found.found[:SEARCHED]:
        best = _better(variant, best, given, wanted)
    told = [*describe_variants(best, found, model, SEARCHED)]
    if found.found and len(every) > 1:
        told.append(f"layouts of models made by rules were searched on {describe_mesh(given.mesh)} only")
    return replace(best, notes=(*best.notes, *told), considered=1 + len(found.found))


def _fused(given: Plan, every: Sequence[Mesh], fusions: Sequence[RuleDecl], wanted: _Wanted) -> Plan:
    """The plan with every fusion that costs less in its layouts, searched again on its mesh: all of it, or what is near
    that plan where the mesh has many.
    """
    model, applied = _fusions_in(given, fusions, wanted)
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
        note += "; layouts were searched in the neighbourhood of the plan before; notes above are of the model before"
    elif len(every) == 1:
        return replace(best, notes=(*best.notes, note), considered=given.considered + 1)
    else:
        note += "; notes on meshes above are of the model before"
    return replace(best, notes=(*given.notes, note), considered=given.considered + 1)


def _fusions_in(given: Plan, fusions: Sequence[RuleDecl], wanted: _Wanted) -> Fused:
    """The model of a plan with every fusion that costs less in its layouts, and what was applied: known where another
    price of memory led to the same plan.
    """
    if not fusions:
        return given.model, ()
    from ..rules.fusing import fused

    for mesh, graph, known in wanted.fused:
        if mesh == given.mesh and graph == given.graph:
            return known
    layouts = Layouts(given, wanted.priced(given.mesh).options, wanted.machine)

    def accepts(match: Match, before: Model, after: Model) -> bool:
        return _keeps(after, wanted.pins, given.model) and layouts.accept(match, before, after)

    found = fused(given.model, fusions, wanted.library, accepts)
    wanted.fused.append((given.mesh, given.graph, found))
    return found


def _large_start(given: Plan, wanted: _Wanted) -> Found | None:
    """What the search found for a model, where searching one like it as a whole would take long."""
    found = wanted.found_of(given.model, given.mesh)
    return found if found is not None and is_large(found) else None


def _plan(
    model: Model,
    meshes: Sequence[Mesh],
    wanted: _Wanted,
    below: float = inf,
    start: Found | None = None,
    joint: JointLayouts | None = None,
) -> Plan | None:
    """The cheapest plan of one model, or None where none costs less than `below`. With a `start`, of other operators or
    prices, that of a local search from its layouts. Beside it is found what rules make of the model, if they will be
    looked at `joint`ly, and the layouts for that next to the plan that is likely to be chosen. Raises as `search`.
    """
    library, pins, below = wanted.library, wanted.pins, min(below, wanted.below)
    even = {name: pin for name, pin in pins.items() if len(pin) == 1}
    memory = wanted.memory(model)
    task = Task(model, wanted.priced, lambda mesh: wanted.allowed(model, mesh, pins), memory)
    even_task = Task(model, wanted.priced, lambda mesh: wanted.allowed(model, mesh, even), memory)
    aid = even_task if wanted.strategy == AUTO else None
    plans = RefereedPlans(model, wanted)

    def beside(outcome: Outcome) -> None:
        plans.look_at(outcome.expected)
        if joint is not None:
            joint.prepare(model)

    def waiting(outcome: Outcome) -> None:
        if joint is not None and outcome.expected:
            likely = plans.preferred(outcome.expected)
            joint.next_to(plans.of(likely), likely)

    aside = None if wanted.referee is None and joint is None else Aside(beside, waiting)
    if start is None:
        known = tuple(wanted.found.values())
        outcome = search_meshes(task, meshes, below, aid, known, not wanted.multiplier, aside)
    else:
        outcome = search_around(task, start, below)
    if start is None and (outcome.found is not None or below == wanted.below):
        for mesh, bound in outcome.bounds.items():
            wanted.bounds[mesh] = min(bound, wanted.bounds.get(mesh, bound))
    if outcome.found is None:
        if outcome.bounds or not outcome.refused:  # of fine meshes near other plans nothing is known
            return None
        raise _refused(outcome, task, wanted) from None
    wanted.coarse.update((found.mesh, found) for found in outcome.coarse if found.best.plan is not None)
    plans.compare(outcome.candidates, lambda: None if joint is None else joint.prepare(model))
    chosen, plan, preferred = plans.chosen(outcome.candidates)
    wanted.found[plan.mesh] = chosen
    told_of = wanted.strategy == AUTO and not wanted.multiplier
    searched = describe_outcome(outcome, meshes, plan.graph, bool(pins)) if told_of else ()
    notes = (*searched, *preferred, *describe_gathered(pins, model, plan.graph))
    notes = with_undivided(notes, model, plan, wanted.machine, library)
    return replace(plan, notes=notes, ended=outcome.ended)


def _refused(outcome: Outcome, task: Task, wanted: _Wanted) -> InputError:
    """Why there is no plan: the reason on the first mesh."""
    mesh, reason = next(iter(outcome.refused.items()))
    if isinstance(reason, InputError):
        return reason
    return explain_refusal(reason, task.allowed(mesh), task.model, mesh, wanted.library, wanted.strategy)


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
        raise explain_refusal(reason, restriction, made, mesh, library, wanted.strategy) from None
    conversions = ConversionModel(mesh, machine, library, wanted.gradient_bytes)
    cost = plan_cost(graph, _all_priced(made.graph), conversions, made.loss)
    note = f"drawn by chance, seed {seed}"
    strategy = wanted.strategy
    return Plan(made, mesh, machine.name, strategy, graph, cost, conversions, (note,), chosen.rules, 1 + len(found))


def _keeps(changed: Model, pins: Mapping[str, Pin], given: Model) -> bool:
    """Whether a changed model has what is pinned in the given one."""
    try:
        return not pinned_paths(pins, given) - pinned_paths(pins, changed)
    except InputError:
        return False


def _all_priced(graph: Graph) -> Meaning:
    """A graph in which no value is taken to be free."""
    return Meaning(graph, bodies=[_all_priced(step.body) for step in graph.steps if isinstance(step, Segment)])


def _better(variant: Variant, best: Plan, given: Plan, wanted: _Wanted, start: Found | None = None) -> Plan:
    """The plan of a changed model, if it costs less than the best so far and keeps pins; `start` as for `_plan`."""
    below = wanted.cost(best) * (1 - GAIN)
    try:
        if pinned_paths(wanted.pins, given.model) - pinned_paths(wanted.pins, variant.model):
            return best
        found = _plan(variant.model, (given.mesh,), wanted, below, start)
    except InputError:
        return best  # a pin or the strategy does not fit the changed model
    if found is None or wanted.cost(found) >= below:
        return best
    return replace(found, rules=variant.rules)
