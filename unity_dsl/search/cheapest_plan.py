"""The cheapest plan of a model and of those that rules make of it, on any of some meshes, at the prices of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Plan
from ..machine.mesh import describe_mesh
from ..syntax.diagnostic import InputError
from ..syntax.parse_rules import RuleDecl
from .accounting.unproved_divisions import with_undivided
from .constants import EQUAL, SEARCHED
from .gathered_pins import describe_gathered
from .joint_layouts import joint_layouts
from .layout_pins import Pin, pinned_paths
from .meshes.mesh_search import Outcome, is_beyond_proof, is_large, search_around, search_meshes
from .meshes.near_search import BestOnMesh, Task
from .model_variants.layouts_of_a_plan import GAIN, Layouts
from .model_variants.rewritten_model import Variant
from .model_variants.variant_enumeration import SingleDevice, variants
from .plan_notes import describe_outcome, describe_unsearched, describe_variants
from .refusals import explain_refusal
from .search_context import SearchContext, made
from .search_end import SearchEnded, check_end, why_ended
from .search_progress import tell_stage
from .search_space import SearchSpace
from .strategies import AUTO, Strategy
from .strategy_space import found_of, in_same_layouts, space_of

if TYPE_CHECKING:
    from ..rules.fusing import Fused
    from ..rules.graph_match import Match
    from .joint.extracted_model import Algebras


def plan_by_algorithm(
    model: Model, every: Sequence[Mesh], context: SearchContext, search: SearchSpace, strategy: Strategy
) -> Plan:
    """The plan that a strategy's own algorithm chooses. A strategy with algebra has fusions among its rules. To the
    plan of any other, those fusions are applied that cost less in its layouts, which are kept.
    """
    assert strategy.algorithm is not None
    rules = (*search.rules, *search.fusions) if strategy.algebra else ()
    space = space_of(model, every, context, rules)
    chosen = strategy.algorithm(space)
    start = found_of(chosen)
    plan = replace(made(start, chosen.variant.model, context), rules=chosen.variant.rules, notes=chosen.notes)
    if strategy.algebra:
        return plan
    better = None
    with suppress(SearchEnded):
        fused, applied = fusions_in(plan, search.fusions, context)
        better = in_same_layouts(space.of(fused), start, chosen) if applied else None
    return plan if better is None else replace(made(better, fused, context), rules=applied, notes=chosen.notes)


@dataclass(frozen=True)
class Substitutions:
    """Rules that make other models, and rules that fuse operators of a plan; or the `algebras` of both."""

    rules: Sequence[RuleDecl] = ()
    fusions: Sequence[RuleDecl] = ()
    algebras: Algebras | None = None

    @staticmethod
    def of(space: SearchSpace, algebras: Algebras | None) -> Substitutions:
        """The substitutions of a space; `single` has none."""
        if space.strategy == "single":
            return Substitutions()
        return Substitutions(space.rules, space.fusions, algebras)

    @property
    def any(self) -> bool:
        return bool(self.rules or self.fusions or self.algebras)


def best_plan(model: Model, every: Sequence[Mesh], context: SearchContext, substitutions: Substitutions) -> Plan | None:
    """The cheapest plan of a model and of the models that substitutions make of it; None where the model itself has no
    plan below the cost cutoff. Raises as `search`.
    """
    algebras = None if context.limit.multiplier else substitutions.algebras
    given = best = _plan(model, every, context)
    if given is None or best is None:
        return None
    with suppress(SearchEnded):
        check_end()
        if algebras is not None:
            best = _joint(given, algebras, context)
        else:
            best = _changed(given, every, substitutions.rules, context) if substitutions.rules else given
            best = _fused(best, every, substitutions.fusions, context)
    if (reason := why_ended()) is None:
        return best
    return replace(best, notes=(*best.notes, *describe_unsearched(substitutions.any)), ended=reason)


def _joint(given: Plan, algebras: Algebras, context: SearchContext) -> Plan:
    """The cheapest plan of the model and of all models that rules make of it, on the mesh of the given plan."""
    from .joint.algebra_notes import describe_algebra
    from .joint.extracted_model import extracted

    tell_stage("rules and layouts together")
    pinned = frozenset(pinned_paths(context.pins, given.model))
    algebra, chosen = algebras.of(given.model, context.machine, pinned), algebras.chosen
    check_end()
    found = joint_layouts(given, algebra, context.results.found.get(given.mesh), context)
    if found is None:
        chosen.setdefault(context.machine, given)
        return replace(given, notes=(*given.notes, *describe_algebra(algebra, None, given)))
    variant = None if found.chosen is None else extracted(algebra, found.chosen)
    start = _large_start(given, context)
    best = _better(variant, given, given, context, start) if variant is not None and variant.rules else given
    notes = describe_algebra(algebra, found, best)
    best = replace(best, notes=(*given.notes, *notes), considered=algebra.extractions)
    chosen.setdefault(context.machine, best)
    return best


def with_operators_of(chosen: Plan, model: Model, context: SearchContext, algebras: Algebras) -> Model | None:
    """The model that rules make of the given one as they did for another plan, of the same model or one of other sizes;
    None where they do not apply. At a price of memory, operators of a model of other sizes are not taken over: fused
    ones take their operands in fewer layouts.
    """
    if chosen.model.parameters == model.parameters:
        return chosen.model
    return None if context.limit.multiplier else algebras.applied(model, chosen.rules)


def plan_as(
    chosen: Plan, changed: Model, model: Model, every: Sequence[Mesh], context: SearchContext, algebras: Algebras
) -> Plan | None:
    """The cheapest plan of a model that rules made as they did for another plan. If no search of the only mesh is
    likely to prove anything, this is a local search from the plan found there at other prices. Raises as `search`.
    """
    from .joint.algebra_notes import describe_rules

    known = None if context.limit.multiplier or len(every) > 1 else context.found_of(changed, every[0])
    best = _plan(changed, every, context, start=known if known is not None and is_beyond_proof(known) else None)
    if best is None:
        return None
    notes = (*best.notes, *describe_rules(algebras.looked_at(model), chosen.rules))
    return replace(best, notes=notes, rules=chosen.rules, considered=chosen.considered)


def _changed(given: Plan, every: Sequence[Mesh], rules: Sequence[RuleDecl], context: SearchContext) -> Plan:
    """The cheapest plan of the given model and of those that rules make, on the mesh of the given plan."""
    machine, library, model = context.machine, context.library, given.model
    found = variants(model, rules, library, SingleDevice(machine, library).seconds)
    best = given
    for variant in found.found[:SEARCHED]:
        best = _better(variant, best, given, context)
    told = [*describe_variants(best, found, model, SEARCHED)]
    if found.found and len(every) > 1:
        told.append(f"layouts of models made by rules were searched on {describe_mesh(given.mesh)} only")
    return replace(best, notes=(*best.notes, *told), considered=1 + len(found.found))


def _fused(given: Plan, every: Sequence[Mesh], fusions: Sequence[RuleDecl], context: SearchContext) -> Plan:
    """The plan with every fusion that costs less in its layouts, searched again on its mesh: as a whole, or in the
    neighbourhood of that plan where the problem is large.
    """
    model, applied = fusions_in(given, fusions, context)
    if not applied:
        return given
    start = _large_start(given, context)
    best = _better(Variant(model, (*given.rules, *applied)), given, given, context, start)
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


def fusions_in(given: Plan, fusions: Sequence[RuleDecl], context: SearchContext) -> Fused:
    """The model of a plan with every fusion that costs less in its layouts, and the fusions that were applied. The
    result is reused where another price of memory led to the same plan.
    """
    if not fusions:
        return given.model, ()
    from ..rules.fusing import fused

    for mesh, graph, known in context.shared.fused:
        if mesh == given.mesh and graph == given.graph:
            return known
    layouts = Layouts(given, context.priced(given.mesh).options, context.machine)

    def accepts(match: Match, before: Model, after: Model) -> bool:
        return keeps_pins(after, context.pins, given.model) and layouts.accept(match, before, after)

    found = fused(given.model, fusions, context.library, accepts)
    context.shared.fused.append((given.mesh, given.graph, found))
    return found


def _large_start(given: Plan, context: SearchContext) -> BestOnMesh | None:
    """The result of the search for a model, if searching a similar model as a whole would take long."""
    found = context.found_of(given.model, given.mesh)
    return found if found is not None and is_large(found) else None


def _plan(
    model: Model,
    meshes: Sequence[Mesh],
    context: SearchContext,
    below: float = inf,
    start: BestOnMesh | None = None,
) -> Plan | None:
    """The cheapest plan of one model, or None where none costs less than `below`. With a `start`, found for other
    operators or prices, this is a local search from its layouts. Raises as `search`.
    """
    library, pins, below = context.library, context.pins, min(below, context.limit.below)
    even = {name: pin for name, pin in pins.items() if len(pin) == 1}
    memory = context.memory(model)
    task = Task(model, context.priced, lambda mesh: context.allowed(model, mesh, pins), memory)
    even_task = Task(model, context.priced, lambda mesh: context.allowed(model, mesh, even), memory)
    aid = even_task if context.strategy == AUTO else None
    if start is None:
        known = tuple(context.results.found.values())
        outcome = search_meshes(task, meshes, below, aid, known, not context.limit.multiplier)
    else:
        outcome = search_around(task, start, below)
    if start is None and (outcome.found is not None or below == context.limit.below):
        for mesh, bound in outcome.bounds.items():
            context.results.bounds[mesh] = min(bound, context.results.bounds.get(mesh, bound))
    if outcome.found is None:
        if outcome.bounds or not outcome.refused:  # nothing is known of fine meshes near other plans
            return None
        raise _refused(outcome, task, context) from None
    context.results.coarse.update((found.mesh, found) for found in outcome.coarse if found.best.plan is not None)
    candidates = outcome.candidates
    equal = (one for one in candidates if one.best.cost <= outcome.cost * (1 + EQUAL))
    chosen = min(equal, key=lambda one: len(one.mesh.axes))
    plan = made(chosen, model, context)
    context.results.found[plan.mesh] = chosen
    if start is None and not (context.limit.multiplier or context.results.candidates):
        context.results.candidates.extend((model, one) for one in candidates)
    told_of = context.strategy == AUTO and not context.limit.multiplier
    searched = describe_outcome(outcome, meshes, plan.graph, bool(pins)) if told_of else ()
    notes = (*searched, *describe_gathered(pins, model, plan.graph))
    notes = with_undivided(notes, model, plan, context.machine, library)
    return replace(plan, notes=notes, ended=outcome.ended)


def _refused(outcome: Outcome, task: Task, context: SearchContext) -> InputError:
    """Why there is no plan: the reason on the first mesh."""
    mesh, reason = next(iter(outcome.refused.items()))
    if isinstance(reason, InputError):
        return reason
    return explain_refusal(reason, task.allowed(mesh), task.model, mesh, context.library, context.strategy)


def keeps_pins(changed: Model, pins: Mapping[str, Pin], given: Model) -> bool:
    """Whether a changed model still has everything that is pinned in the given one."""
    try:
        return not pinned_paths(pins, given) - pinned_paths(pins, changed)
    except InputError:
        return False


def _better(variant: Variant, best: Plan, given: Plan, context: SearchContext, start: BestOnMesh | None = None) -> Plan:
    """The plan of a changed model if it costs less than the best so far and keeps pins, else the best; `start` as for
    `_plan`.
    """
    below = context.cost(best) * (1 - GAIN)
    try:
        if pinned_paths(context.pins, given.model) - pinned_paths(context.pins, variant.model):
            return best
        found = _plan(variant.model, (given.mesh,), context, below, start)
    except InputError:
        return best  # a pin or the strategy does not fit the changed model
    if found is None or context.cost(found) >= below:
        return best
    return replace(found, rules=variant.rules)
