"""The cheapest plan found that fits the machine's memory: multipliers of the limit, and segments that are recomputed.

Segments are few. What they free and cost is known of every plan that is searched without them, so one set of them is
searched besides none: that of the best plan that fits so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ...graph.layout import Mesh
from ...graph.plan import Plan
from ...index.library import Library
from ...machine.machine import Machine
from ..accounting.weighed_plan import counted, least_held, recomputing, within_memory
from ..meshes.mesh_search import COARSE
from ..meshes.near_search import Found
from ..plan_notes import describe_excess, describe_gap, describe_limit
from ..search_end import SearchEnded
from ..search_progress import tell_stage
from .multiplier_search import MOST_SCOUTS, MOST_TRIES, Attempt, Tried, scout_multipliers, try_multipliers


@dataclass(frozen=True)
class Searched:
    """The best plan at a price of memory, counted; what was found on its mesh; and lower bounds by mesh."""

    plan: Plan
    found: Found
    bounds: Mapping[Mesh, float]


Search = Callable[[float, Sequence[Mesh], frozenset[str], Mapping[Mesh, Found]], Searched]
"""At a multiplier, on meshes, with segments recomputed, from what is known."""


@dataclass(frozen=True)
class LimitedSearch:
    """Searches on any mesh of `every` one. Of the `segments` that may be recomputed, `others` are plans that do so and
    were searched as if they did not. `scouts` are the best plans on coarse meshes, by multiplier and what is
    recomputed; `tried` are all plans that were found within the limit, or as near to it as they are.
    """

    machine: Machine
    library: Library
    every: Sequence[Mesh]
    search: Search
    segments: Sequence[str]
    others: list[Plan] = field(default_factory=list)
    scouts: dict[tuple[float, frozenset[str]], Found] = field(default_factory=dict)
    tried: list[Plan] = field(default_factory=list)

    def attempt(
        self, multiplier: float, meshes: Sequence[Mesh], again: frozenset[str], known: Mapping[Mesh, Found] = {}
    ) -> tuple[Attempt, Found]:
        """The best plan for a multiplier, in which the segments `again` are recomputed."""
        fitting = [plan.cost.seconds for plan in self.tried if not plan.warnings]
        if fitting:
            tell_stage("cheaper plans within the memory", min(fitting))
        searched = self.search(multiplier, meshes, again, known)
        if self.segments:
            self.others.append(within_memory(searched.plan, self.machine, self.library, self.segments))
        bounds = {mesh: bound - multiplier * self.machine.memory_bytes for mesh, bound in searched.bounds.items()}
        plan = within_memory(searched.plan, self.machine, self.library)
        self.tried.append(plan)
        return Attempt(multiplier, plan, least_held(plan, self.library), bounds), searched.found

    def scout(self, start: Plan, bounds: Mapping[Mesh, float] = {}) -> Tried:
        """Multipliers on coarse meshes, whose problems are small, from the cheapest plan, which does not fit."""
        least, lessened = least_held(start, self.library), within_memory(start, self.machine, self.library)
        given = [Attempt(0.0, start, least, bounds), Attempt(inf, lessened, least)]
        tried = Tried(self.machine.memory_bytes, given)
        coarse, again = [mesh for mesh in self.every if len(mesh.axes) <= COARSE], start.recomputed

        def attempt(multiplier: float) -> Attempt:
            left = [mesh for mesh in coarse if not tried.is_out(mesh)]
            made, self.scouts[multiplier, again] = self.attempt(multiplier, left or coarse, again)
            return made

        if coarse:
            scout_multipliers(tried, attempt, MOST_SCOUTS)
        return tried

    def search_meshes(self, scouted: Tried) -> Tried:
        """Fine meshes at the best multiplier, near the plan of a coarse one where that is known; and the mesh of the
        best plan at others.
        """
        again = scouted.attempts[0].plan.recomputed
        fine = [mesh for mesh in self.every if len(mesh.axes) > COARSE]
        start = self.scouts.get((scouted.multiplier, again))
        if start is not None and not fine:
            return scouted
        meshes, near = (self.every, {}) if start is None else (fine, {start.mesh: start})
        first, found = self.attempt(scouted.multiplier, meshes, again, near)
        tried = Tried(scouted.limit, [*scouted.attempts[:2], first])
        mesh = first.plan.mesh
        known = {mesh: found}
        try_multipliers(tried, lambda multiplier: self.attempt(multiplier, (mesh,), again, known)[0], MOST_TRIES)
        tried.attempts += scouted.attempts[2:]
        return tried

    def scout_recomputed(self, cheapest: Plan, bounds: Mapping[Mesh, float], scouted: Tried) -> Tried | None:
        """Scouts with segments recomputed: those of the best plan that fits so, or all. None where that does not pay,
        or needs no multiplier.
        """
        fitting = [plan for plan in self.others if plan.recomputed and not plan.warnings]
        best = min(fitting, key=lambda plan: plan.cost.seconds, default=None)
        again = frozenset(self.segments) if best is None else best.recomputed
        start = counted(recomputing(cheapest, again, self.machine, self.library), self.library)
        if not again or (scouted.best is not None and start.cost.seconds >= scouted.best.seconds):
            return None
        if start.cost.memory.total <= self.machine.memory_bytes:
            least = min((start, *fitting), key=lambda plan: plan.cost.seconds).cost.seconds
            coarse = [m for m in self.every if len(m.axes) <= COARSE and bounds.get(m, 0.0) < least]
            meshes = dict.fromkeys((cheapest.mesh, *coarse))
            self.others.append(self.attempt(0.0, tuple(meshes), again)[0].plan)
            return None
        return self.scout(start)


def within_limit(cheapest: Plan, lessened: Plan, bounds: Mapping[Mesh, float], limited: LimitedSearch) -> Plan:
    """The cheapest plan found that fits, where the `cheapest` of all, with its `bounds`, does not. `lessened` is that
    one with weights gathered again and segments recomputed: where none fits, that, with a note on what the least takes.
    Where the search is ended before, the cheapest by then.
    """
    try:
        return _within_limit(cheapest, lessened, bounds, limited)
    except SearchEnded as end:
        fitting = [plan for plan in (lessened, *limited.tried, *limited.others) if not plan.warnings]
        best = min(fitting, key=lambda plan: plan.cost.seconds, default=lessened)
        told = (
            describe_limit(best, cheapest, limited.machine.memory_bytes) if fitting else "no plan that fits was found"
        )
        notes = (*best.notes, f"{told}; the search within the memory was ended, and no bound is known")
        return replace(best, notes=notes, ended=end.reason)


def _within_limit(cheapest: Plan, lessened: Plan, bounds: Mapping[Mesh, float], limited: LimitedSearch) -> Plan:
    """As `within_limit`, unless it is ended.

    The multiplier is searched on coarse meshes, then all meshes at that one, and at last the mesh of the best plan at
    others.
    """
    limited.others.append(lessened)
    tried = limited.scout(cheapest, bounds)
    other = limited.scout_recomputed(cheapest, bounds, tried)
    fitting = [plan for plan in limited.others if not plan.warnings]
    scouted = [*tried.attempts, *(() if other is None else other.attempts)]
    if other is not None and (tried.best is None or (other.best and other.best.seconds < tried.best.seconds)):
        tried = other
    if limited.every and (tried.best is not None or not fitting):
        tried = limited.search_meshes(tried)
    fitting = [plan for plan in limited.others if not plan.warnings]
    if tried.best is not None:
        fitting.insert(0, tried.best.plan)
    if not fitting:
        told = tuple(describe_excess(tried))
        warnings = tuple(replace(found, help="; ".join((found.help, *told))) for found in lessened.warnings)
        least = min(one.least for one in (*scouted, *tried.attempts))
        return replace(lessened, notes=(*lessened.notes, *told), warnings=warnings, least_bytes=least)
    best = min(fitting, key=lambda plan: plan.cost.seconds)
    notes = [*best.notes, describe_limit(best, cheapest, tried.limit)]
    if tried.best is not None and best is tried.best.plan:
        notes.append(describe_gap(tried, len(limited.every) > 1))
    return replace(best, notes=tuple(notes))
