"""The cheapest plan found that fits the machine's memory: multipliers of the limit, and segments that are recomputed.

Segments are few. The bytes that they free and the seconds that they cost are known for every plan that is searched
without recomputation. One set of segments is therefore searched besides none: that of the best plan that fits by
recomputing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ...graph.layout import Mesh
from ...graph.plan import Plan
from ...machine.byte_count import describe_bytes
from ..accounting.kept_iterations import shadow_price_of_memory, with_room_used
from ..accounting.memory_budget import Budget
from ..accounting.weighed_plan import counted, least_held, recomputing, within_memory
from ..constants import COARSE, FAR_COARSE, FAR_TOO_LARGE, MOST_SCOUTS, MOST_TRIES, PREDICTED_WITHIN, ROOM_COMPARED
from ..meshes.near_search import BestOnMesh
from ..plan_notes import describe_excess, describe_gap
from ..search_end import SearchEnded
from ..search_progress import tell_stage
from .multiplier_search import Attempt, Bounds, Tried, scout_multipliers, try_multipliers


@dataclass(frozen=True)
class Searched:
    """The best plan at a price of memory, its bytes counted, and what was found on its mesh; both are None where no
    plan is below the cutoff. `bounds` are lower bounds by mesh, `others` the plans of other meshes that cost little
    more.
    """

    plan: Plan | None
    found: BestOnMesh | None
    bounds: Mapping[Mesh, float]
    others: Sequence[Plan] = ()


Search = Callable[[float, Sequence[Mesh], frozenset[str], Mapping[Mesh, BestOnMesh], float, str], Searched]
"""Searches at a multiplier, on meshes, with segments recomputed, from what is known, below a cost. The multiplier
prices what is held while the operator named last runs.
"""


@dataclass(frozen=True)
class LimitedSearch:
    """Searches on any mesh of `every` one. `others` are plans as they fit, which may recompute `segments` that they
    were searched without. `coarse` are plans of coarse meshes, from which searches start; `scouts` are the best ones by
    multiplier and by what is recomputed. `tried` are all plans that were found, made to fit the limit as nearly as they
    can.

    A multiplier prices bytes at one moment. `busy` has, by what is recomputed, the operator that runs then: the one at
    which the plan before held the most. `worth` is memory's average shadow price in seconds a byte, by what is
    recomputed: a byte less saves recomputing iterations. `beyond` are sets of segments with which nothing can fit.
    `compared` are plans whose steps are simulated besides that of the best one.
    """

    budget: Budget
    every: Sequence[Mesh]
    search: Search
    segments: Sequence[str]
    coarse: dict[Mesh, BestOnMesh] = field(default_factory=dict)
    others: list[Plan] = field(default_factory=list)
    scouts: dict[tuple[float, frozenset[str]], BestOnMesh] = field(default_factory=dict)
    tried: list[Plan] = field(default_factory=list)
    busy: dict[frozenset[str], str] = field(default_factory=dict)
    worth: dict[frozenset[str], float] = field(default_factory=dict)
    beyond: frozenset[frozenset[str]] = frozenset()
    compared: list[Plan] = field(default_factory=list)

    @property
    def fitting(self) -> list[Plan]:
        """The `others` that fit."""
        return [plan for plan in self.others if not plan.warnings]

    @property
    def scouted(self) -> list[Mesh]:
        """The meshes on which multipliers are scouted: coarse ones, or the only one."""
        return list(self.every) if len(self.every) == 1 else [m for m in self.every if len(m.axes) <= COARSE]

    def attempt(
        self,
        multiplier: float,
        meshes: Sequence[Mesh],
        again: frozenset[str],
        known: Mapping[Mesh, BestOnMesh] = {},
        below: float = inf,
    ) -> tuple[Attempt, BestOnMesh] | Bounds:
        """The best plan for a multiplier, with the segments `again` recomputed, if it costs less than `below`. If it
        does not fit because of what it holds at another moment, a plan is searched for at the price of that moment as
        well: on its mesh, or on all if it holds far too much.
        """
        found = self._attempt(multiplier, meshes, again, known, below)
        if isinstance(found, Bounds) or not multiplier or not found[0].plan.warnings:
            return found
        before, self.busy[again] = self.busy.get(again, ""), found[0].plan.cost.memory.place
        if self.busy[again] == before:
            return found
        near = found[0].least <= FAR_TOO_LARGE * self.budget.bytes
        other = self._attempt(multiplier, (found[0].plan.mesh,) if near else meshes, again, known, below)
        return other if not isinstance(other, Bounds) and other[0].least < found[0].least else found

    def _attempt(
        self,
        multiplier: float,
        meshes: Sequence[Mesh],
        again: frozenset[str],
        known: Mapping[Mesh, BestOnMesh],
        below: float,
    ) -> tuple[Attempt, BestOnMesh] | Bounds:
        fitting = any(not plan.warnings for plan in self.tried)
        tell_stage("cheaper plans within the memory" if fitting else "a plan that fits the memory")
        searched = self.search(multiplier, meshes, again, known, below, self.busy.get(again, ""))
        bounds = {mesh: bound - multiplier * self.budget.bytes for mesh, bound in searched.bounds.items()}
        if searched.plan is None or searched.found is None:
            return Bounds(multiplier, bounds)
        if self.segments:
            self.others.append(within_memory(searched.plan, self.budget, self.segments))
        if again:
            self.others.extend(within_memory(counted(other, self.budget), self.budget) for other in searched.others)
        plan = within_memory(searched.plan, self.budget)
        self.tried.append(plan)
        return Attempt(multiplier, plan, least_held(plan, self.budget), bounds), searched.found

    def scout(self, start: Attempt, other: Plan) -> Tried:
        """Tries multipliers on coarse meshes, with small problems, or on the only mesh. It starts from a plan that does
        not fit, and another that may.
        """
        coarse, again = self.scouted, start.plan.passes.recomputed
        attempts = [start, Attempt(inf, other, least_held(other, self.budget))]
        tried = Tried(self.budget.bytes, attempts, worth=self.worth.get(again, 0.0))
        self.busy.setdefault(again, start.plan.cost.memory.place)

        def search(multiplier: float, below: float) -> Attempt | Bounds:
            left = [mesh for mesh in coarse if not tried.is_out(mesh)]
            found = self.attempt(multiplier, left or coarse, again, self.coarse, below)
            if isinstance(found, Bounds):
                return found
            attempt, self.scouts[multiplier, again] = found
            self.coarse[found[1].mesh] = found[1]
            return attempt

        if coarse and again not in self.beyond:
            scout_multipliers(tried, search, coarse, MOST_SCOUTS, FAR_COARSE if len(coarse) < len(self.every) else inf)
        return tried

    def search_meshes(self, scouted: Tried) -> Tried:
        """Searches fine meshes at the best multiplier, near the plan of a coarse one if that is known; then the mesh of
        the best plan at other multipliers.
        """
        again, multiplier = scouted.attempts[0].plan.passes.recomputed, scouted.multiplier
        if again in self.beyond:
            return scouted
        start = self.scouts.get((multiplier, again))
        looked_at = start is not None or any(one.multiplier == multiplier for one in scouted.exhausted)
        meshes = [mesh for mesh in self.every if not (looked_at and mesh in self.scouted)]
        meshes = [mesh for mesh in meshes if not scouted.is_out(mesh)]
        if not meshes:
            return scouted
        near = self.coarse if start is None else {start.mesh: start}
        found = self.attempt(multiplier, meshes, again, near, scouted.below(multiplier))
        if isinstance(found, Bounds):
            return replace(scouted, exhausted=[*scouted.exhausted, found])
        first, known = found[0], {found[1].mesh: found[1]}
        tried = Tried(scouted.limit, [*scouted.attempts[:2], first], worth=scouted.worth)

        def search(multiplier: float, below: float) -> Attempt | Bounds:
            found = self.attempt(multiplier, (first.plan.mesh,), again, known, below)
            return found if isinstance(found, Bounds) else found[0]

        try_multipliers(tried, search, (first.plan.mesh,), MOST_TRIES)
        tried.attempts += scouted.attempts[2:]
        tried.exhausted += scouted.exhausted
        return tried

    def scout_recomputed(self, cheapest: Attempt, scouted: Tried) -> Tried | None:
        """Searches with segments recomputed: those of the best plan that fits by recomputing, or all. None where that
        does not pay even with as few iterations recomputed as the room allows, or where it needs no multiplier.
        """
        best = min((p for p in self.fitting if p.passes.recomputed), key=lambda plan: plan.cost.seconds, default=None)
        again = frozenset(self.segments) if best is None else best.passes.recomputed
        start = counted(recomputing(cheapest.plan, again, self.budget.machine, self.budget.library), self.budget)
        if not again:
            return None
        self.worth[again] = shadow_price_of_memory(start, self.budget)
        if scouted.best is not None and not self._shorter_with_room(start, scouted.best.seconds):
            return None
        if not self.budget.fits(start):
            lessened = within_memory(start, self.budget)
            return self.scout(Attempt(0.0, start, least_held(start, self.budget)), lessened)
        coarse = [m for m in self.every if len(m.axes) <= COARSE and cheapest.bounds.get(m, 0.0) < start.cost.seconds]
        meshes = tuple(dict.fromkeys((cheapest.plan.mesh, *coarse)))
        found = self.attempt(self.worth[again], meshes, again, self.coarse)
        assert not isinstance(found, Bounds), "any cost is of use"
        if found[0].plan.warnings:
            return self.scout(found[0], start)
        self.others.append(found[0].plan)
        return None

    def expected(self, plan: Plan) -> float:
        """The predicted seconds of a plan that fits once its free room is used, by memory's average shadow price."""
        room = max(0.0, self.budget.bytes - plan.cost.memory.total)
        return plan.cost.seconds - self.worth.get(plan.passes.recomputed, 0.0) * room

    def _shorter_with_room(self, plan: Plan, seconds: float) -> bool:
        """Whether a plan takes less than `seconds` with all its room used."""
        if plan.cost.seconds < seconds:
            return True
        return self.expected(plan) < seconds and with_room_used(plan, self.budget).cost.seconds < seconds


def within_limit(cheapest: Plan, lessened: Plan, bounds: Mapping[Mesh, float], limited: LimitedSearch) -> Plan:
    """The cheapest plan found that fits, where the `cheapest` of all, with its `bounds`, does not. `lessened` is that
    plan with weights re-gathered and segments recomputed. If none fits, the result is `lessened` with a note on the
    least that a plan holds. If the search is ended before, it is the cheapest that fits by then.
    """
    try:
        return _within_limit(cheapest, lessened, bounds, limited)
    except SearchEnded as end:
        fitting = [plan for plan in (lessened, *limited.tried, *limited.others) if not plan.warnings]
        best = min(fitting, key=lambda plan: plan.cost.seconds, default=lessened)
        told = "" if fitting else "no plan that fits was found; "
        notes = (*best.notes, f"{told}the search within the memory was ended, and no bound is known")
        return replace(best, notes=notes, ended=end.reason)


def beyond_limit(lessened: Plan, least: float, budget: Budget) -> Plan:
    """As `within_limit`, where it is known beforehand that every plan holds at least `least` bytes, more than there
    are.
    """
    limit, held = describe_bytes(budget.bytes), describe_bytes(least)
    told = f"no plan was found that fits {limit} a device: each holds {held} or more"
    warnings = tuple(replace(found, help=f"{found.help}; {told}") for found in lessened.warnings)
    return replace(lessened, notes=(*lessened.notes, told), warnings=warnings, least_bytes=least)


def _within_limit(cheapest: Plan, lessened: Plan, bounds: Mapping[Mesh, float], limited: LimitedSearch) -> Plan:
    """As `within_limit`, unless it is ended.

    The multiplier is searched on coarse meshes. Then all meshes are searched at that one, and at last the mesh of the
    best plan at others.
    """
    limited.others.append(lessened)
    first = Attempt(0.0, cheapest, least_held(cheapest, limited.budget), bounds)
    if cheapest.passes.recomputed:
        limited.worth[cheapest.passes.recomputed] = shadow_price_of_memory(cheapest, limited.budget)
    tried = limited.scout(first, within_memory(cheapest, limited.budget))
    other = limited.scout_recomputed(first, tried)
    every = [tried] if other is None else [tried, other]
    if other is not None and (tried.best is None or (other.best and other.best.seconds < tried.best.seconds)):
        tried = other
    if limited.every and (tried.best is not None or not limited.fitting):
        tried = limited.search_meshes(tried)
    fitting = limited.fitting
    if tried.best is not None:
        fitting.insert(0, tried.best.plan)
    if not fitting:
        told = tuple(describe_excess(tried))
        warnings = tuple(replace(found, help="; ".join((found.help, *told))) for found in lessened.warnings)
        least = min(one.least for one in (*every, tried))
        return replace(lessened, notes=(*lessened.notes, *told), warnings=warnings, least_bytes=least)
    best = _cheapest(fitting, limited)
    if tried.best is None or best is not tried.best.plan:
        return best
    return replace(best, notes=(*best.notes, describe_gap(tried, len(limited.every) > 1)))


def _cheapest(fitting: Sequence[Plan], limited: LimitedSearch) -> Plan:
    """The cheapest plan that fits. If segments may be recomputed, a few plans are compared with as few iterations
    recomputed as the room allows: the best by the shadow price of their free room.
    """
    least = min(fitting, key=lambda plan: plan.cost.seconds)
    if not limited.segments:
        return least

    others = {plan.cost.seconds: plan for plan in sorted(fitting, key=limited.expected, reverse=True)}
    del others[least.cost.seconds]
    compared = [(least, with_room_used(least, limited.budget))]
    for plan in reversed(list(others.values())[-ROOM_COMPARED:]):
        if limited.expected(plan) < PREDICTED_WITHIN * min(used.cost.seconds for _, used in compared):
            compared.append((plan, with_room_used(plan, limited.budget)))
    most = PREDICTED_WITHIN * min(used.cost.seconds for _, used in compared)
    near = {used.cost.seconds: (plan, used) for plan, used in reversed(compared) if used.cost.seconds < most}
    ways = list(near.values())
    best, _ = min(ways, key=lambda one: one[1].cost.seconds)
    limited.compared.extend(plan for plan, _ in ways if plan.mesh != best.mesh)
    return best
