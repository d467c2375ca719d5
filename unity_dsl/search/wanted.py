"""What plans are searched for, and the plan of what a search found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from ..graph.graph import Graph, Model
from ..graph.layout import Layout, Mesh
from ..graph.plan import BatchDivision, Memory, Plan, PlannedGraph
from ..graph.typed_configurations import Theorems
from ..index.library import Library
from ..machine.machine import Machine
from .accounting.memory_budget import Budget
from .accounting.plan_cost import plan_cost
from .accounting.weighed_plan import recomputing
from .choices.restriction import Restriction, places
from .constants import PROMISING
from .layout_pins import Pin, apply_pins, without_unnamed_cuts
from .layout_problem.plan_assembly import assemble
from .layout_problem.problem_context import Prices, prices_on
from .memory_limit.held_bytes import HeldBytes, Moment
from .memory_limit.memory_price import MemoryPrice
from .meshes.near_search import Found
from .plan_notes import of_any_layouts
from .strategies import STRATEGIES

if TYPE_CHECKING:
    from ..rules.fusing import Fused


@dataclass(frozen=True)
class Limit:
    """What the limit of memory makes of a search. The segments `recomputed` are. The `multiplier` is of what is held
    while the operator `busy` runs, or the busiest one. Plans of a model as it is are searched for if they cost `below`
    so much. Plans beside one that the memory limits may recompute the `segments`, but for so many last iterations as
    are `lasting`, if None as many as there is room for; or have the operators of the `unlimited` plan.
    """

    multiplier: float = 0.0
    busy: str = ""
    recomputed: frozenset[str] = frozenset()
    below: float = inf
    segments: Sequence[str] = ()
    lasting: Mapping[str, int] | None = field(default_factory=dict)
    unlimited: Plan | None = None


@dataclass(frozen=True)
class Shared:
    """Tables that do not depend on the price of memory: of meshes `prices`, of models what they have `held`, of plans
    which operators were `fused` and what they hold when they are `counted`.
    """

    prices: dict[Mesh, Prices] = field(default_factory=dict)
    held: dict[tuple[int, frozenset[str], str], tuple[Graph, HeldBytes]] = field(default_factory=dict)
    fused: list[tuple[Mesh, PlannedGraph, Fused]] = field(default_factory=list)
    counted: dict[object, tuple[PlannedGraph, Memory]] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """What was `found` on meshes, near which other models are searched; lower `bounds`; plans of `coarse` meshes; and
    the `candidates`, the best of several meshes that cost nearly the same, with their model.
    """

    found: dict[Mesh, Found] = field(default_factory=dict)
    bounds: dict[Mesh, float] = field(default_factory=dict)
    coarse: dict[Mesh, Found] = field(default_factory=dict)
    candidates: list[tuple[Model, Found]] = field(default_factory=list)


@dataclass(frozen=True)
class Wanted:
    """What plans are searched for: those of a strategy with pins, on a machine, of a micro-batch in a `division` of the
    batch if there is one, within a `limit` of memory. Searches add to what is `shared`, and to their `results`.
    """

    machine: Machine
    library: Library
    theorems: Theorems
    strategy: str
    pins: Mapping[str, Pin]
    gradient_bytes: float
    excluded: Mapping[str, frozenset[Layout]] = field(default_factory=dict)
    division: BatchDivision | None = None
    limit: Limit = field(default_factory=Limit)
    shared: Shared = field(default_factory=Shared)
    results: Results = field(default_factory=Results)

    @property
    def budget(self) -> Budget:
        """What plans may hold."""
        return Budget(self.machine, self.library, self.division, self.shared.counted)

    def limited(self, multiplier: float, recomputed: frozenset[str], below: float, busy: str) -> Wanted:
        """The same at a price of memory, in seconds a byte, of plans that cost less than so much with what they pay for
        it: for what is held while the operator `busy` runs, if the model has one of this path. What is found is kept
        apart.
        """
        limit = replace(self.limit, multiplier=multiplier, recomputed=recomputed, below=below, busy=busy)
        return replace(self, limit=limit, results=Results())

    def knowing(self, found: Mapping[Mesh, Found]) -> Wanted:
        """The same, with what was found on these meshes, and nothing else."""
        return replace(self, results=Results(found=dict(found)))

    def memory(self, model: Model) -> MemoryPrice | None:
        """What a model's choices are charged for what they hold, and for running again; None where that is nothing."""
        if not self.limit.multiplier and not self.limit.recomputed:
            return None
        limit = self.limit
        busy = limit.busy if any(place.path == limit.busy and place.node for place in places(model)) else ""
        key = id(model.graph), limit.recomputed, busy
        if key not in self.shared.held:
            saved = next((held.saved for _, held in self.shared.held.values()), None)
            self.shared.held[key] = (
                model.graph,
                HeldBytes(
                    model.graph, self.library, saved, limit.recomputed, moment=Moment(self.division is not None, busy)
                ),
            )
        return MemoryPrice(self.shared.held[key][1], limit.multiplier, self.machine)

    def cost(self, plan: Plan) -> float:
        """What is minimised: the seconds of a plan, and what it pays for memory."""
        memory, conversions = self.memory(plan.model), self.priced(plan.mesh).conversions
        return plan.cost.seconds + (0.0 if memory is None else memory.of_plan(plan.graph, conversions))

    def nearly(self, plan: Plan) -> list[Plan]:
        """The plans of coarse meshes, with the operators of a plan that was found, that cost little more than it."""
        least = self.cost(plan)
        near = [
            one for one in self.results.coarse.values() if one.mesh != plan.mesh and one.best.cost <= least * PROMISING
        ]
        near = [one for one in near if one.problem.meaning.graph is plan.model.graph]
        plans, notes = (made(one, plan.model, self) for one in near), of_any_layouts(plan.notes, operators=True)
        return [replace(other, rules=plan.rules, considered=plan.considered, notes=notes) for other in plans]

    def other_plans(self, plan: Plan) -> list[tuple[Plan, Wanted]]:
        """The best plans of the model as it is written, of several meshes, but for the plan itself."""
        others = list[tuple[Plan, Wanted]]()
        for model, one in self.results.candidates:
            if one.mesh != plan.mesh or model.graph is not plan.model.graph:
                other = replace(made(one, model, self), exposed=self.machine.exposure)
                others.append((other, self.knowing({one.mesh: one})))
        return others

    @property
    def searched(self) -> Library:
        """Without the ops that no pin names and whose slices are as good as those of `partition` to any operator."""
        return without_unnamed_cuts(self.library, self.pins)

    def priced(self, mesh: Mesh) -> Prices:
        if mesh not in self.shared.prices:
            self.shared.prices[mesh] = prices_on(mesh, self.machine, self.searched, self.theorems, self.gradient_bytes)
        return self.shared.prices[mesh]

    def found_of(self, model: Model, mesh: Mesh) -> Found | None:
        """What was found on a mesh for this very model, if that is the last that was searched there."""
        found = self.results.found.get(mesh)
        return found if found is not None and found.problem.meaning.graph is model.graph else None

    def allowed(self, model: Model, mesh: Mesh, pins: Mapping[str, Pin]) -> Restriction:
        """Raises E305 to E308 for pins, E309 for a strategy, that do not fit the model on this mesh."""
        given = STRATEGIES[self.strategy].restrict(model, mesh, self.library)
        return replace(apply_pins(given, pins, model, mesh, self.library), excluded=self.excluded)


def made(found: Found, model: Model, wanted: Wanted) -> Plan:
    """The plan that was found, without notes."""
    problem, best = found.problem, found.best
    assert best.plan is not None, "what is found has a plan"
    graph = assemble(problem, best.plan, found.mesh, model)
    conversions = problem.prices.conversions
    cost = plan_cost(graph, problem.meaning, conversions, model.loss)
    plan = Plan(model, found.mesh, wanted.machine.name, wanted.strategy, graph, cost, conversions)
    return recomputing(plan, wanted.limit.recomputed, wanted.machine, wanted.library)


@dataclass(frozen=True)
class Solution:
    """The cheapest plan of a search, with how it was `wanted`, at a price of memory where that is the limit, and `free`
    of that; `others` are plans that cost nearly as little on other meshes, or with the operators of the given model.
    """

    plan: Plan
    wanted: Wanted
    free: Wanted | None = None
    others: Sequence[tuple[Plan, Wanted]] = ()
