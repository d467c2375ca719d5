"""Solves for the cheapest plan of a strategy on any of some meshes, within the memory where that is the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Plan
from .accounting.kept_iterations import with_iterations_kept
from .accounting.recomputation import outermost
from .accounting.weighed_plan import counted, recomputing, within_memory
from .cheapest_plan import Substitutions, best_plan, plan_as, plan_by_algorithm, with_operators_of
from .constants import ENOUGH
from .drawn_plan import drawn_plan
from .memory_limit.least_bytes import LeastBytes
from .memory_limit.limited_search import LimitedSearch, Searched, beyond_limit, within_limit
from .memory_limit.stored_bytes import StoredBytes
from .meshes.near_search import BestOnMesh
from .plan_notes import describe_precision, describe_unused
from .search_context import Limit, Results, SearchContext, Solution
from .search_end import why_ended
from .search_space import FREELY, SearchSpace, Solving
from .searchable_meshes import searchable
from .strategies import AUTO, STRATEGIES, check_strategy, seed_of

if TYPE_CHECKING:
    from .joint.extracted_model import Algebras


def solve(model: Model, meshes: Sequence[Mesh], space: SearchSpace, how: Solving = FREELY) -> Solution:
    """The cheapest plan of a model in a space, on any of some meshes, under the additive cost.

    `auto` chooses among all models that rules make, together with the layouts, on the mesh of the given model's plan.
    Other strategies compare some of these models, then apply fusions that cost less in the layouts of the plan.
    `single` is the reference for programs and uses no rules; `random:SEED` draws a plan, of a model drawn from those
    that rules and fusions make. Raises E305 to E308 for pins, E309 and E310 for strategies, that do not fit the model.
    """
    if space.imported is None:
        check_strategy(space.strategy)
    every, pins, notes = searchable(meshes, space.pins)
    return _Solve(model, every, replace(space, pins=pins), how, notes, space.algebras_for(model)).solution()


def context_of(model: Model, space: SearchSpace, how: Solving) -> SearchContext:
    """The context in which plans of a model are searched for, without a price of memory."""
    segments = outermost(model.graph) if how.recompute is None and model.loss is not None else ()
    return SearchContext(
        space.machine,
        space.library,
        space.theorems,
        space.strategy,
        space.pins,
        model.gradient_bytes,
        space.excluded,
        how.division,
        Limit(
            recomputed=frozenset(how.recompute or ()),
            segments=segments,
            lasting=None if how.recompute is None else how.kept_iterations,
        ),
        results=Results(found={} if how.known is None else how.known),
    )


@dataclass(frozen=True)
class _Solve:
    """Solves a model, and what rules make of it, on meshes. `notes` are added to any plan."""

    model: Model
    meshes: Sequence[Mesh]
    space: SearchSpace
    how: Solving
    notes: tuple[str, ...]
    algebras: Algebras | None

    def solution(self) -> Solution:
        space, how = self.space, self.how
        context = context_of(self.model, space, how)
        seed = seed_of(space.strategy) if space.imported is None else None
        strategy = space.imported or STRATEGIES.get(space.strategy)
        if seed is not None:
            return self._weighed(drawn_plan(self.model, self.meshes[0], context, seed, space), context)
        assert strategy is not None, "a strategy that is checked"
        if strategy.algorithm is not None:
            return self._weighed(plan_by_algorithm(self.model, self.meshes, context, space, strategy), context)
        known = [mesh for mesh in self.meshes if mesh in context.results.found]
        cheapest = self._cheapest(known or self.meshes, context, how.chosen)
        assert cheapest is not None, "any cost is of use"
        found = within_memory(cheapest, context.budget, context.limit.segments)
        limits = found.warnings or found.cost.seconds > cheapest.cost.seconds * (1 + ENOUGH)
        if space.strategy == AUTO and limits:
            return self._limited(cheapest, found, context)
        found = replace(
            with_iterations_kept(found, context.limit.lasting, context.budget), exposed=space.machine.exposure
        )
        return Solution(found, context, None, [] if found.passes.recomputed else context.other_plans(found))

    def _given_notes(self) -> tuple[str, ...]:
        """The notes on meshes, machine and precision, which hold for any plan."""
        machine = self.space.machine
        unused, precision = describe_unused(self.meshes[0], machine), describe_precision(self.model, machine)
        return (*self.notes, *unused, *precision)

    def _weighed(self, drawn: Plan, context: SearchContext) -> Solution:
        """A plan that was not searched for, with its memory and recomputation."""
        told = replace(drawn, notes=(*self._given_notes(), *drawn.notes))
        plan = recomputing(told, context.limit.recomputed, context.machine, context.library)
        plan = within_memory(counted(plan, context.budget), context.budget, context.limit.segments)
        plan = with_iterations_kept(plan, context.limit.lasting, context.budget)
        return Solution(replace(plan, exposed=context.machine.exposure, ended=why_ended()), context)

    def _cheapest(self, meshes: Sequence[Mesh], context: SearchContext, chosen: Plan | None) -> Plan | None:
        """The cheapest plan on meshes. It has the operators of the `chosen` plan, if rules make these of the model."""
        model, algebras, changed, best = self.model, self.algebras, None, None
        if chosen is not None and algebras is not None:
            changed = with_operators_of(chosen, model, context, algebras)
        if chosen is not None and algebras is not None and changed is not None:
            best = plan_as(chosen, changed, model, meshes, context, algebras)
        else:
            best = best_plan(model, meshes, context, Substitutions.of(self.space, algebras))
        if best is None:
            return None
        best = replace(best, notes=(*best.notes, *self._given_notes()))
        return counted(best, context.budget) if self.how.counts else best

    def _limited(self, cheapest: Plan, found: Plan, context: SearchContext) -> Solution:
        """The cheapest plan that fits the memory, where the `cheapest` of all does not; or `found`, that plan as made
        to fit.
        """
        model, how, budget, limit = self.model, self.how, context.budget, context.limit
        limits: dict[int, SearchContext] = {}

        def searched(
            multiplier: float,
            meshes: Sequence[Mesh],
            again: frozenset[str],
            known: Mapping[Mesh, BestOnMesh],
            below: float,
            busy: str,
        ) -> Searched:
            priced = context.limited(multiplier, again, below, busy)
            priced.results.found.update(known)
            plan = self._cheapest(meshes, priced, how.chosen or (None if multiplier else cheapest))
            others = priced.nearly(plan) if again and plan is not None else []
            if plan is not None:
                limits[id(plan.graph)] = priced
            results = priced.results
            limits.update((id(one.graph), priced.knowing({one.mesh: results.coarse[one.mesh]})) for one in others)
            return Searched(plan, None if plan is None else results.found[plan.mesh], results.bounds, others)

        stored = StoredBytes.of(model, self.space.pins.values())
        least = LeastBytes(stored, self.meshes[0].size, context.library, how.division is not None)
        compared = list[Plan]()
        if why_ended() is None and how.of_use(cheapest):
            if (held := least.of_plans(model, cheapest, limit.segments)) > budget.bytes:
                found = beyond_limit(found, held, budget)
            elif how.of_use(least.lengthened(cheapest, limit.segments, budget)):
                same = how.chosen is not None and how.chosen.model.parameters == model.parameters
                alone = 0.0 if same else least.of(model)
                limited = LimitedSearch(
                    budget,
                    stored.with_room(self.meshes, budget.bytes),
                    searched,
                    limit.segments,
                    context.results.coarse,
                    beyond=frozenset({frozenset[str]()} if alone > budget.bytes else ()),
                )
                found = within_limit(cheapest, found, context.results.bounds, limited)
                found = with_iterations_kept(found, limit.lasting, budget)
                compared = [with_iterations_kept(one, limit.lasting, budget) for one in limited.compared]
        asked = outermost(model.graph) if how.kept_iterations is None and model.loss is not None else limit.segments

        def beside(context: SearchContext) -> SearchContext:
            own = replace(context.limit, segments=asked, lasting=how.kept_iterations, unlimited=cheapest)
            return replace(context, limit=own)

        others = [
            (self._without_limit(one, cheapest), beside(limits[id(one.graph)]))
            for one in compared
            if id(one.graph) in limits
        ]
        priced = limits.get(id(found.graph), context)
        return Solution(self._without_limit(found, cheapest), beside(priced), beside(context), others)

    def _without_limit(self, plan: Plan, cheapest: Plan) -> Plan:
        """A plan searched within the memory, with what is known of the cheapest plan without a limit."""
        free, exposed = cheapest.cost.seconds, self.space.machine.exposure
        return replace(plan, unlimited_seconds=free, unlimited=cheapest, exposed=exposed)
