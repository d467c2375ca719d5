"""The space in which an algorithm of the literature chooses, and the plan that it chose with operators fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from ..graph.graph import Model
from ..graph.layout import Layout, Mesh
from ..graph.plan import Cost, Plan, PlannedGraph, PlannedSegment
from ..rules.shipped_rules import ShippedRules
from ..syntax.parse_rules import RuleDecl
from .accounting.weighed_plan import counted, gathered_paths
from .choices.restriction import Restriction, places
from .exact_search.bounded_search import Optimum
from .layout_pins import apply_pins
from .layout_problem.changed_operators import changed_paths
from .layout_problem.held_price import HeldPrice
from .layout_problem.model_problem import Problem, build_problem
from .layout_problem.variable_meaning import Impossible
from .meshes.near_search import BestOnMesh, Task, choices_of, near_plan
from .model_variants.layouts_of_a_plan import GAIN
from .refusals import explain_refusal
from .search_context import SearchContext
from .strategies import AUTO
from .strategies.strategy import Chosen, Space

if TYPE_CHECKING:
    from .joint.extracted_model import Algebras

_EVERYTHING = Restriction()


def space_of(model: Model, meshes: Sequence[Mesh], context: SearchContext, rules: Sequence[RuleDecl]) -> Space:
    """The space of a strategy, in which pins are kept. Its problems raise diagnostics."""
    machine, library = context.machine, context.library

    def problem(
        model: Model, mesh: Mesh, restriction: Restriction = _EVERYTHING, held: HeldPrice | None = None
    ) -> Problem:
        allowed = replace(apply_pins(restriction, context.pins, model, mesh, library), excluded=context.excluded)
        try:
            return build_problem(model, context.priced(mesh), allowed, memory=held)
        except Impossible as reason:
            raise explain_refusal(reason, allowed, model, mesh, library, context.strategy) from None

    def fits(model: Model, graph: PlannedGraph, mesh: Mesh) -> bool:
        conversions = context.priced(mesh).conversions
        plan = Plan(model, mesh, machine.name, context.strategy, graph, Cost(), conversions)
        plan = plan.with_passes(regathered=gathered_paths(plan, library))
        return not context.budget.is_beyond(plan) and context.budget.fits(counted(plan, context.budget))

    return Space(model, meshes, machine, library, rules, problem, fits)


def algebras_for(model: Model, strategy: str, shipped: ShippedRules, rules: Sequence[RuleDecl]) -> Algebras | None:
    """The models that the shipped rules and the given ones make, for a search that chooses among them. None where no
    rule fits the model, or the strategy does not choose.
    """
    if strategy != AUTO or model.loss is None or not (rules or shipped.fit(model)):
        return None
    # This import loads most of the prover: only a model that a rule may fit has to wait for it.
    from .joint.extracted_model import Algebras

    return Algebras(shipped, rules)


def accept_used(plan: Plan, rules: Sequence[RuleDecl], shipped: ShippedRules) -> None:
    """Checks that those of these rules that a plan applies are proved. Raises E542."""
    used = {applied.rule for applied in plan.rules}
    for rule in rules:
        if rule.name in used:
            shipped.accept(rule.name)


def found_of(chosen: Chosen) -> BestOnMesh:
    """The chosen plan in the form in which the search has its results."""
    return BestOnMesh(chosen.problem, Optimum(chosen.plan, chosen.cost, -inf, False))


def in_same_layouts(fused: Space, start: BestOnMesh, chosen: Chosen) -> BestOnMesh | None:
    """The plan of a model with fused operators in the layouts that were chosen; None where it does not cost less.

    Values are stored and made as before: a fused operator has no more configurations than the operators that it
    replaces.
    """
    kept = _kept_layouts(fused.model, chosen.graph)
    task = Task(fused.model, lambda _: start.problem.prices, lambda _: kept, chosen.held)
    changed = changed_paths(fused.model.graph, start.problem.meaning.graph)
    choices = choices_of(start.mesh, [start]).without(changed)
    return near_plan(task, start.mesh, choices, chosen.cost * (1 - GAIN), rounds=1, reach=0)


def _kept_layouts(model: Model, graph: PlannedGraph) -> Restriction:
    """The layouts in which a plan stores and makes the values of a model, where all iterations agree."""
    made = _made_in(graph, "")
    agreed = {path: next(iter(layouts)) for path, layouts in made.items() if len(layouts) == 1}
    storage = {place.path: agreed[place.path] for place in places(model) if place.stored and place.path in agreed}
    produced = {place.path: agreed[place.path] for place in places(model) if place.node and place.path in agreed}
    return Restriction(storage=storage, produced=produced)


def _made_in(graph: PlannedGraph, prefix: str) -> dict[str, set[Layout]]:
    found = {prefix + name: {value.produced} for name, value in graph.values.items()}
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                for path, layouts in _made_in(run.body, f"{prefix}{step.segment.name}.").items():
                    found.setdefault(path, set()).update(layouts)
    return found
