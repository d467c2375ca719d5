"""Exact search: elimination on small domains, then bounds that exclude all other values.

It is exact: a value is excluded only if a lower bound says that every plan with it costs more than a known plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ..cost_network.bucket_elimination import TooLarge
from ..folded_solver.exact_minimum import Solved, Solver
from ..folded_solver.lower_bounds import Bound, limit_materialised
from ..folded_solver.problem_part import Domains, Part, no_limits
from ..folded_solver.reduced_cost_filtering import TOLERANCE, WORTHWHILE, Bounded, bounded
from ..search_end import SearchEnded
from .presolve import Simplified, simplify

_STEP = 4.0
_FIRST = _STEP**-3
_LAST = _STEP**-6
"""Fractions of the gap between the best plan and the bound. The first part to be eliminated is reduced from the whole
gap, down to `_FIRST`, until it is sure to be possible. Later parts are `_STEP` times larger or smaller, and at least
`_LAST`. A plan found within a part of the gap is the best one, and takes less time to find than in the whole gap.
"""
_FINE_STEP = _STEP**0.5
"""The step that is used after `_STEP` was too large."""
_SURE = 400
"""Choices of a domain that can surely be eliminated, as far as is known before the first elimination."""
_LIKELY = 24
_FEW = 1000
"""Values of a domain: on average of a variable that has a choice (`_LIKELY`), or of all together (`_FEW`). Many domains
of this size can be eliminated, and few larger ones.
"""
AT_ONCE = 1 << 23
"""Entries of tables, at most, with which a domain of few values is solved without bounding it first."""
ROUNDS = 2
"""How often one domain is bounded for a proof. If more rounds are needed, the tables are mostly far too large."""


Near = Callable[[Solved], Iterable[Domains]]
"""Small domains, each with the given plan in it."""


def nowhere(plan: Solved) -> Iterable[Domains]:
    return ()


@dataclass(frozen=True)
class Optimum:
    """The best plan found. `bound` is a lower bound on every plan of the domain. If `exact`, no other plan is better.

    `plan` is None if none costs less than what was known before; `cost` is that known cost then.
    """

    plan: Solved | None
    cost: float
    bound: float
    exact: bool


@dataclass
class _Best:
    """The best plan known so far, and how many domains may still be eliminated (`attempts`).

    `managed` is the most choices of a domain that was eliminated. `too_many` is the fewest of one whose tables were too
    large.
    """

    plan: Solved | None = None
    cost: float = np.inf
    managed: int = _SURE
    too_many: float = np.inf
    attempts: float = np.inf

    def offer(self, solver: Solver) -> None:
        cost = float(solver.table)
        if cost < self.cost:
            self.cost, self.plan = cost, solver.solution()


@dataclass(frozen=True)
class Survey:
    """A domain before it is searched: simplified and bounded, or solved where that is as quick.

    `bound` is a lower bound on every plan of the domain, infinite where there is none.
    """

    part: Part
    domains: Domains
    searched: Simplified
    found: Bounded | Solver | None

    @property
    def bound(self) -> float:
        match self.found:
            case Solver(table=table):
                return float(table)
            case Bounded(bound=bound):
                return bound.least
        return np.inf


def survey(part: Part, domains: Domains, known: Bound | None = None) -> Survey:
    """Bounds a domain, in a fraction of the time that finding the best plan takes. A `known` bound is not computed
    again.
    """
    searched = simplify(part, domains)
    inner, left = searched.part, searched.domains.agreed(searched.part)
    if left.empty:
        return Survey(part, domains, searched, None)
    if known is not None:
        return Survey(part, domains, searched, Bounded(inner, left, known))
    if _choices(left) <= _FEW:
        with suppress(TooLarge):
            return Survey(part, domains, searched, Solver(inner, left, no_limits(inner), most=AT_ONCE))
    return Survey(part, domains, searched, bounded(inner, left))


def optimise(
    part: Part,
    domains: Domains,
    near: Near = nowhere,
    below: float = np.inf,
    rounds: int = ROUNDS,
    attempts: float = np.inf,
) -> Optimum:
    """The plan of least cost, if that is less than `below`. If the tables are too large, the best plan found is
    improved within the domains `near` it.
    """
    return search(survey(part, domains), near, below, rounds, attempts)


def search(
    known: Survey,
    near: Near = nowhere,
    below: float = np.inf,
    rounds: int = ROUNDS,
    attempts: float = np.inf,
) -> Optimum:
    """As `optimise`, for a surveyed domain. The domain is bounded at most `rounds` times, and at most `attempts` of its
    parts are eliminated. If ended early, returns the best plan known by then, with the bound of the survey. Raises
    SearchEnded if none is known.
    """
    best = _Best(cost=below, attempts=attempts)
    bound, exact = best.cost, True
    match known.found:
        case Solver() as solver:
            best.offer(solver)
            bound = best.cost
        case Bounded() as now:
            try:
                if below == np.inf:
                    _begin(now, best)
                bound, exact = _raise(now, best, rounds)
            except SearchEnded:
                if best.plan is None:
                    raise
                bound, exact = known.bound, False
    plan = None if best.plan is None else known.searched.restored(best.plan)
    found = Optimum(plan, best.cost, min(bound, best.cost), exact)
    return found if exact else improved(known.part, known.domains, near, found)


def improved(part: Part, domains: Domains, near: Near, found: Optimum) -> Optimum:
    """Replaces the plan by the best one of a neighbourhood, one neighbourhood after the other, until none has a better
    plan. The one just searched is not tried again for the new plan: a neighbourhood is the same for every plan in it.
    """
    if found.plan is None:
        return found
    tried, at = 0, 0
    around = list(near(found.plan))
    while tried < len(around):
        try:
            better = search(survey(part, domains.intersected(around[at])), below=found.cost, rounds=1)
        except SearchEnded:
            return found
        at, tried = (at + 1) % len(around), tried + 1
        if better.plan is not None:
            found, tried = replace(found, plan=better.plan, cost=better.cost), 1
            around = list(near(better.plan))
    return found


def _begin(now: Bounded, best: _Best) -> None:
    """Finds some plan among the values nearest to the bound, in wider and wider domains until there is one."""
    least = now.bound.least
    if not np.isfinite(least):
        return
    for gap in [least * 10.0**power for power in range(-6, 3)] + [np.inf]:
        near = now.bound.within(now.domains, gap, steadily=True).agreed(now.part)
        if not near.empty and (not _attempt(now, near, gap, best) or best.plan is not None):
            break


def _raise(now: Bounded, best: _Best, rounds: int) -> tuple[float, bool]:
    """Improves the best plan by those of a domain. Returns a lower bound on these, and whether none is better now.

    Values that cost more than the best plan are excluded. If the rest is too large to be eliminated, the part nearest
    to the bound is eliminated, for a better plan or a better bound. More sweeps raise the bound while that helps.
    """
    proved, before = -np.inf, np.inf
    for number in range(1, rounds + 1):
        raised = now.bound.least - before > WORTHWHILE * now.gap(best.cost)
        before, proved = now.bound.least, max(proved, _descend(now, best, rounds > 1))
        if best.cost <= proved:
            return proved, True
        left = now.left(best.cost)
        if left.empty:
            return best.cost, True
        if number == rounds or not (raised or now.shrinks(left)):
            break
        now = now.on(left)
    return proved, False


def _descend(now: Bounded, best: _Best, finely: bool) -> float:
    """Eliminates as much as possible of the gap between the bound and the best plan, `finely` in smaller steps at the
    end. Returns a better bound: the cost of the best plan if the whole gap was eliminated.

    Domains that are likely to be too large are left out. Only the time depends on that.
    """
    least, gap = now.bound.least, now.gap(best.cost)
    if gap <= abs(least) * TOLERANCE * 2:
        return least + gap
    if not gap < np.inf:
        return least
    room = gap
    while room > gap * _FIRST and _choices(_near(now, room)) > best.managed:
        room /= _STEP
    while not _eliminate(now, room, best):
        room /= _STEP
        if room < gap * _LAST:
            return least
    step = _STEP
    while room < now.gap(best.cost):
        wider = min(room * step, now.gap(best.cost))
        if _eliminate(now, wider, best):
            room = wider
        elif finely and step > _FINE_STEP:
            step = _FINE_STEP
        else:
            return least + room
    # The whole gap was eliminated. In `least + room` rounding loses the plan's cost if the bound is far below.
    return best.cost


def _eliminate(now: Bounded, gap: float, best: _Best) -> bool:
    """Takes the best plan that costs at most `gap` above the bound. Returns whether that was likely to be possible, and
    was.
    """
    near = _near(now, gap)
    likely = near.count <= max(_LIKELY * near.open, _FEW) and _choices(near) < best.too_many and best.attempts > 0
    return near.empty or (likely and _attempt(now, near, gap, best))


def _near(now: Bounded, gap: float) -> Domains:
    """The values that plans at most `gap` above the bound may have, or more."""
    return now.bound.within(now.domains, gap).agreed(now.part)


def _choices(domains: Domains) -> int:
    """How many values there are besides one of each variable."""
    return domains.count - domains.variables


def _attempt(now: Bounded, near: Domains, gap: float, best: _Best) -> bool:
    """Takes the best plan at most `gap` above the bound, if the tables are small enough. Otherwise, if no plan is
    known, takes the best one whose iterations all do the same.
    """
    best.attempts -= 1
    with suppress(TooLarge):
        limits = limit_materialised(now.part, now.bound, near, gap)
        if limits.empty:
            return True
        try:
            best.offer(Solver(now.part, near, limits))
            best.managed = max(best.managed, _choices(near))
            return True
        except TooLarge:
            if now.part.repeats and best.plan is None:
                best.offer(Solver(now.part, near, limits, steadily=True))
    best.too_many = min(best.too_many, _choices(near))
    return False
