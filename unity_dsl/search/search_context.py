"""The context of a search, which says what plans it looks for, and the plan made of what it found."""

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
from .meshes.near_search import BestOnMesh
from .plan_notes import of_any_layouts
from .strategies import STRATEGIES

if TYPE_CHECKING:
    from ..rules.fusing import Fused


@dataclass(frozen=True)
class Limit:
    """How the memory limit constrains a search. `multiplier` is the price of a byte held while the operator `busy`, or
    the busiest one, runs. The segments `recomputed` are recomputed. `below` is the cost cutoff for the model before
    rewriting. Alternatives to a plan that memory limits may recompute the `segments` except for their `lasting` last
    iterations; if that is None, except for as many as there is room for. They may also have the operators of the
    `unlimited` plan.
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
    """Tables that do not depend on the price of memory: `prices` by mesh, the memory `held` by each model's choices,
    which operators of a plan were `fused`, and the memory `counted` for a plan.
    """

    prices: dict[Mesh, Prices] = field(default_factory=dict)
    held: dict[tuple[int, frozenset[str], str], tuple[Graph, HeldBytes]] = field(default_factory=dict)
    fused: list[tuple[Mesh, PlannedGraph, Fused]] = field(default_factory=list)
    counted: dict[object, tuple[PlannedGraph, Memory]] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """The results of searches: plans `found` by mesh, near which other models are searched; lower `bounds`; plans of
    `coarse` meshes. The `candidates` are the best plans of several meshes that cost nearly the same, with their model.
    """

    found: dict[Mesh, BestOnMesh] = field(default_factory=dict)
    bounds: dict[Mesh, float] = field(default_factory=dict)
    coarse: dict[Mesh, BestOnMesh] = field(default_factory=dict)
    candidates: list[tuple[Model, BestOnMesh]] = field(default_factory=list)


@dataclass(frozen=True)
class SearchContext:
    """Which plans are searched for: those of a strategy with pins, on a machine, within a `limit` of memory. With a
    `division` of the batch, they are plans of a micro-batch. Searches add to what is `shared` and to their `results`.
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
        """The memory that plans may use."""
        return Budget(self.machine, self.library, self.division, self.shared.counted)

    def limited(self, multiplier: float, recomputed: frozenset[str], below: float, busy: str) -> SearchContext:
        """The same at a price of memory of `multiplier` seconds a byte, for plans that cost less than `below` including
        what they pay for memory. Bytes are counted while the operator `busy` runs, if the model has one of this path.
        Results are kept apart.
        """
        limit = replace(self.limit, multiplier=multiplier, recomputed=recomputed, below=below, busy=busy)
        return replace(self, limit=limit, results=Results())

    def knowing(self, found: Mapping[Mesh, BestOnMesh]) -> SearchContext:
        """The same with only what was found on these meshes as its results."""
        return replace(self, results=Results(found=dict(found)))

    def memory(self, model: Model) -> MemoryPrice | None:
        """The prices of what a model's choices hold and of recomputation; None where both are free."""
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
        """The objective: the seconds of a plan plus what it pays for memory."""
        memory, conversions = self.memory(plan.model), self.priced(plan.mesh).conversions
        return plan.cost.seconds + (0.0 if memory is None else memory.of_plan(plan.graph, conversions))

    def nearly(self, plan: Plan) -> list[Plan]:
        """The plans of coarse meshes, with the operators of a given plan, that cost little more than it."""
        least = self.cost(plan)
        near = [
            one for one in self.results.coarse.values() if one.mesh != plan.mesh and one.best.cost <= least * PROMISING
        ]
        near = [one for one in near if one.problem.meaning.graph is plan.model.graph]
        plans, notes = (made(one, plan.model, self) for one in near), of_any_layouts(plan.notes, operators=True)
        return [replace(other, rules=plan.rules, considered=plan.considered, notes=notes) for other in plans]

    def other_plans(self, plan: Plan) -> list[tuple[Plan, SearchContext]]:
        """The best plans of the model as it is written, on several meshes, without the given plan."""
        others = list[tuple[Plan, SearchContext]]()
        for model, one in self.results.candidates:
            if one.mesh != plan.mesh or model.graph is not plan.model.graph:
                other = replace(made(one, model, self), exposed=self.machine.exposure)
                others.append((other, self.knowing({one.mesh: one})))
        return others

    @property
    def searched(self) -> Library:
        """The library without parallel ops that no pin names and whose slices are as good as those of `partition`."""
        return without_unnamed_cuts(self.library, self.pins)

    def priced(self, mesh: Mesh) -> Prices:
        if mesh not in self.shared.prices:
            self.shared.prices[mesh] = prices_on(mesh, self.machine, self.searched, self.theorems, self.gradient_bytes)
        return self.shared.prices[mesh]

    def found_of(self, model: Model, mesh: Mesh) -> BestOnMesh | None:
        """The result on a mesh for this very model, if it is the last model that was searched there."""
        found = self.results.found.get(mesh)
        return found if found is not None and found.problem.meaning.graph is model.graph else None

    def allowed(self, model: Model, mesh: Mesh, pins: Mapping[str, Pin]) -> Restriction:
        """The restriction by strategy and pins on a mesh. Raises E305 to E308 for pins, E309 for a strategy, that do
        not fit the model there.
        """
        given = STRATEGIES[self.strategy].restrict(model, mesh, self.library)
        return replace(apply_pins(given, pins, model, mesh, self.library), excluded=self.excluded)


def made(found: BestOnMesh, model: Model, context: SearchContext) -> Plan:
    """The plan that was found, without notes."""
    problem, best = found.problem, found.best
    assert best.plan is not None, "what is found has a plan"
    graph = assemble(problem, best.plan, found.mesh, model)
    conversions = problem.prices.conversions
    cost = plan_cost(graph, problem.meaning, conversions, model.loss)
    plan = Plan(model, found.mesh, context.machine.name, context.strategy, graph, cost, conversions)
    return recomputing(plan, context.limit.recomputed, context.machine, context.library)


@dataclass(frozen=True)
class Solution:
    """The cheapest plan of a search, with the `context` in which it was found: at a price of memory where that is the
    limit. `free` is the context without such a price. `others` are plans that cost nearly as little on other meshes, or
    with the operators of the given model.
    """

    plan: Plan
    context: SearchContext
    free: SearchContext | None = None
    others: Sequence[tuple[Plan, SearchContext]] = ()
