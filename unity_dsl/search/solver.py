"""Solves points: the cheapest plan under the additive cost, on meshes or in a neighbourhood of another plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import BatchDivision, Exposure, Plan, in_micro_batches
from ..machine.mesh import reordered_axes
from ..syntax.diagnostic import InputError
from ..syntax.parse_rules import RuleDecl
from .accounting.kept_iterations import with_iterations_kept
from .accounting.memory_budget import Budget
from .accounting.weighed_plan import counted, within_memory
from .cheapest_plan import fusions_in
from .constants import DIVIDED, ROUNDS_ON_MESH
from .layout_problem.starting_domains import KnownChoices
from .meshes.mesh_search import search_around, search_meshes
from .meshes.near_search import BestOnMesh, Task, choices_of, near_plan
from .offloading import offloading
from .plan_notes import as_limited, of_any_layouts
from .point import FREE, Point, Restricted
from .recomputed_segments import Recompute
from .search_context import SearchContext, Shared, Solution, made
from .search_space import SearchSpace, Solving
from .solve import context_of, solve
from .strategies import Strategy


@dataclass(frozen=True)
class Part:
    """The work of a step in each of a number of micro-batches: the model of one, the `division` of the batch, what the
    user `asked` to recompute (None where memory decides), and which of that is `offloaded`.
    """

    model: Model
    division: BatchDivision | None
    asked: Recompute | None
    offloaded: frozenset[str]


@dataclass(frozen=True)
class Solver:
    """Solves the plans of a space on some meshes. `part_of` gives, by number of micro-batches, the part of the batch in
    each.
    """

    space: SearchSpace
    meshes: Sequence[Mesh]
    part_of: Callable[[int], Part]
    known: dict[int, dict[Mesh, BestOnMesh]] = field(default_factory=dict)
    cheapest: dict[int, float] = field(default_factory=dict)

    def start(self, count: int, exposure: Exposure, below: float = inf) -> tuple[Point, list[Point]]:
        """The cheapest plan in `count` micro-batches, and others of nearly the same cost. Plans within the memory are
        searched where the cheapest of all takes less than `below`. More than one micro-batch is tried on the meshes of
        the whole batch first. These may divide no part of the batch: all meshes are searched if it costs DIVIDED times
        as much there.
        """
        known = self.known.setdefault(count, dict(self.known.get(1, {})))
        begun = bool(known)
        found = self._started(count, exposure, below, known)
        seconds = self._free_seconds(found, count)
        if begun and seconds > DIVIDED * self.cheapest.get(1, inf):
            known.clear()
            found = self._started(count, exposure, below, known)
        self.cheapest[count] = min(self.cheapest.get(count, inf), seconds)
        return self._points(found, count)

    def _free_seconds(self, found: Solution, count: int) -> float:
        """The cost of the cheapest plan without a memory limit, in `count` micro-batches."""
        plan = found.plan.unlimited or found.plan
        return in_micro_batches(plan, self.part_of(count).division).cost.seconds

    def _started(self, count: int, exposure: Exposure, below: float, known: dict[Mesh, BestOnMesh]) -> Solution:
        """The solution at an exposure, on the known meshes if there are any."""
        algebras, division = self.space.algebras, self.part_of(count).division
        chosen = None if algebras is None or count == 1 else algebras.chosen.get(self.space.exposing(exposure).machine)

        def of_use(cheapest: Plan) -> bool:
            return in_micro_batches(cheapest, division).cost.seconds < below

        how = replace(self._how(count), known=known, chosen=chosen, of_use=of_use)
        return solve(self.part_of(count).model, self.meshes, self.space.exposing(exposure), how)

    def by_strategy(
        self,
        strategy: Strategy,
        count: int,
        meshes: Sequence[Mesh],
        exposure: Exposure,
        fusions: Sequence[RuleDecl] = (),
    ) -> Plan:
        """The plan of another strategy in `count` micro-batches, without rules other than these fusions."""
        space = replace(self.space.exposing(exposure), imported=strategy, rules=(), fusions=fusions)
        return self._points(solve(self.part_of(count).model, meshes, space, self._how(count)), count)[0].plan

    def point_of(self, plan: Plan, exposure: Exposure, like: Plan) -> Point:
        """A point for a plan that was not solved here, at the prices of an exposure, so that it can be solved again. It
        takes over what is known of the plan `like`.
        """
        part, space = self.part_of(plan.micro_batches), self.space.exposing(exposure)
        context = context_of(part.model, space, self._how(plan.micro_batches))
        free, seconds = like.unlimited, like.unlimited_seconds
        plan = replace(plan, exposed=space.machine.exposure, unlimited=free, unlimited_seconds=seconds)
        plan = _told_as(plan, like)
        if plan.rules != like.rules and self.space.algebras is not None:
            plan = self._rules_told(plan)
        return Point(plan, context, exposure)

    def _rules_told(self, plan: Plan) -> Plan:
        """The plan with notes on the rules that it applies."""
        from .joint.algebra_notes import described_anew

        assert self.space.algebras is not None, "rules choose among models"
        if not self.space.algebras.found:  # the search was ended before
            return plan
        algebra = self.space.algebras.looked_at(self.part_of(plan.micro_batches).model)
        return replace(plan, notes=described_anew(plan.notes, algebra, plan.rules))

    def again(self, point: Point, exposure: Exposure, *, algebra: bool = False) -> Point | None:
        """The cheapest plan on the mesh of a point at another exposure, with its micro-batches, operators and
        restriction; with `algebra`, with all operators that rules make.
        """
        if point.restricted is not FREE:
            return self._restricted_again(point, exposure)
        plan, count = point.plan, point.plan.micro_batches
        how = self._how(count)
        if how.recompute is None and not plan.warnings:
            again = plan.passes.recomputed | plan.passes.offloaded
            how = replace(how, recompute=again or (frozenset() if plan.unlimited is None else None))
        if not algebra:
            known = {mesh: found for mesh, found in point.context.results.found.items() if mesh == plan.mesh}
            how = replace(how, known=known, chosen=plan)
        how, space = replace(how, counts=_keeps_less(plan)), self.space.exposing(exposure)
        found = solve(self.part_of(count).model, (plan.mesh,), space, how)
        new, _ = self._points(found, count)
        return replace(new, plan=as_limited(new.plan, plan))

    def _restricted_again(self, point: Point, exposure: Exposure) -> Point | None:
        """The same for a point with a restriction: searched in the neighbourhood of its plan."""
        model, mesh, machine = point.plan.model, point.plan.mesh, self.space.exposing(exposure).machine
        context = replace(point.context.knowing(point.context.results.found), machine=machine, shared=Shared())
        if (known := point.context.found_of(model, mesh)) is None:
            return None
        found = near_plan(_task(point, context), mesh, choices_of(mesh, [known]), inf)
        return None if found is None else self._point(found, replace(point, exposure=exposure), context)

    def near(self, point: Point, restricted: Restricted, factor: float) -> Point | None:
        """The best plan in the neighbourhood of a point's plan, within a restriction, that costs at most `factor` times
        as much. It is searched at the point's price of memory and without one; the cheaper plan is taken. Choices that
        the restriction leaves open differ from the point along one mesh axis at most.
        """
        given, context = point.plan, point.context
        known = context.found_of(given.model, given.mesh)
        if known is None:
            return None
        weights = {path for path, weight in given.model.weights() if weight.value.needs_gradient}
        choices = choices_of(given.mesh, [known]).without(weights if restricted.keeping else ())
        best: Point | None = None
        limits = context.limit.multiplier or context.limit.recomputed
        priced = [context, *([point.free] if limits and point.free is not None else [])]
        for one in priced:
            task = _task(replace(point, restricted=restricted), one)
            found = near_plan(task, given.mesh, choices, known.best.cost * factor, rounds=1)
            new = None if found is None else self._point(found, replace(point, restricted=restricted), one)
            if new is not None and (best is None or new.plan.cost.seconds < best.plan.cost.seconds):
                best = new
        return best

    def on_mesh(self, point: Point, mesh: Mesh, factor: float = inf) -> Point | None:
        """The best plan of a point's operators on another mesh, if it costs at most `factor` times as much."""
        given, context = point.plan, point.context
        known = context.found_of(given.model, given.mesh)
        task = _task(point, context)
        choices = KnownChoices() if known is None else _choices_on(mesh, known)
        below = factor * (known.best.cost if known else context.cost(replace(given, division=None)))
        found = near_plan(task, mesh, choices, below, rounds=ROUNDS_ON_MESH) if choices.chosen else None
        if found is None and (point.restricted.placed or not choices.chosen):
            try:
                found = search_meshes(task, (mesh,), below, None, (known,) if known else (), False).found
            except InputError:
                return None
        return None if found is None else self._point(found, point, context)

    def fused(self, point: Point) -> Point | None:
        """The best plan in the neighbourhood of a point's plan with the fusions that cost less in its layouts. None
        where there are no such fusions, or memory is the limit.
        """
        given, context, algebras = point.plan, point.context, self.space.algebras
        known = context.found_of(given.model, given.mesh)
        if known is None or algebras is None or _keeps_less(given):
            return None
        model, applied = fusions_in(given, self.space.fusions, context)
        if not applied:
            return None
        changed = replace(given, model=model, rules=(*given.rules, *applied))
        like = replace(point, plan=self._rules_told(changed))
        found = search_around(_task(like, context), known, inf).found
        return None if found is None else self._point(found, like, context)

    def _point(self, found: BestOnMesh, like: Point, context: SearchContext) -> Point:
        """A point for what was found, with what is known of the point `like`. The plan is brought within the memory if
        the memory limits that of `like`.
        """
        given = like.plan
        plan = _like(given, made(found, given.model, context))
        if _keeps_less(given):
            plan = self._within_memory(plan, context, given.division)
        plan = replace(in_micro_batches(plan, given.division), exposed=like.exposure)
        return replace(like, plan=plan, context=context.knowing({plan.mesh: found}))

    def _within_memory(self, plan: Plan, context: SearchContext, division: BatchDivision | None) -> Plan:
        """The plan of a part of the batch made to fit the memory, with a warning where it does not."""
        budget = Budget(self.space.machine, context.library, division)
        plan = within_memory(counted(plan, budget), budget, context.limit.segments)
        plan = with_iterations_kept(plan, context.limit.lasting, budget)
        return offloading(plan, self.part_of(1 if division is None else division.count).offloaded, budget)

    def _how(self, count: int) -> Solving:
        """The options that a user asked for, for plans in `count` micro-batches."""
        part = self.part_of(count)
        if part.asked is None:
            return Solving(None, None, division=part.division)
        return Solving(part.asked.paths, part.asked.kept, division=part.division)

    def _points(self, found: Solution, count: int) -> tuple[Point, list[Point]]:
        part, context = self.part_of(count), found.context.knowing(found.context.results.found)
        budget = Budget(self.space.machine, context.library, part.division)

        def point(plan: Plan, context: SearchContext) -> Point:
            plan = offloading(plan, part.offloaded, budget)
            free = None if plan.unlimited is None else in_micro_batches(plan.unlimited, part.division)
            plan = replace(in_micro_batches(plan, part.division), unlimited=free)
            return Point(plan, context, context.machine.exposure, free=found.free)

        return point(found.plan, context), [point(_told_as(plan, found.plan), own) for plan, own in found.others]


def _keeps_less(plan: Plan) -> bool:
    """Whether memory is the limit of a plan, or the plan recomputes, offloads or re-gathers something."""
    passes = plan.passes
    return plan.unlimited is not None or bool(passes.recomputed or passes.offloaded or passes.regathered)


def _told_as(plan: Plan, like: Plan) -> Plan:
    """A plan with those notes of another one that hold for any layouts, such as notes on meshes and bounds."""
    notes = of_any_layouts(like.notes, operators=plan.rules == like.rules)
    return replace(plan, notes=(*notes, *(note for note in plan.notes if note not in notes)))


def _task(point: Point, context: SearchContext) -> Task:
    """The search problem of a point's model within its restriction, in a context."""
    model = point.plan.model
    return Task(model, context.priced, point.restricted.allowed(model, context), context.memory(model))


def _choices_on(mesh: Mesh, known: BestOnMesh) -> KnownChoices:
    """The choices of a plan on another mesh, carried over to the axes of this one: reordered, split, or with a factor
    moved.
    """
    order = reordered_axes(mesh, known.mesh)
    return choices_of(mesh, [known]) if order is None else choices_of(known.mesh, [known]).reordered(order)


def _like(given: Plan, plan: Plan) -> Plan:
    """A plan with what is known of the given one besides its layouts, passes and memory. Nothing is offloaded."""
    return replace(
        plan,
        passes=replace(plan.passes, offloaded=frozenset()),
        strategy=given.strategy,
        rules=given.rules,
        considered=given.considered,
        notes=of_any_layouts(given.notes, operators=True),
        unlimited=given.unlimited,
        unlimited_seconds=given.unlimited_seconds,
    )
