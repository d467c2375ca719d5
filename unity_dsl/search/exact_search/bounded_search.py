"""Exact search: elimination on small domains, then bounds that exclude all other values.

Exact: a value is excluded only where a lower bound says that every plan with it costs more than one already known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ..cost_network.bucket_elimination import TooLarge
from ..folded_solver.exact_minimum import Solved, Solver
from ..folded_solver.lower_bounds import bound_part, limit_materialised
from ..folded_solver.problem_part import Domains, Part, no_limits
from ..folded_solver.reduced_cost_filtering import SWEEPS, TOLERANCE, WORTHWHILE, Bounded, bounded
from .iteration_peeling import peel
from .presolve import simplify

_STEP = 4.0
_FIRST = _STEP**-3
_LAST = _STEP**-6
"""Of the gap between the best plan and the bound: what is tried to be eliminated first, where all of it is not sure to
be possible; so many times more or less after that; and at least. A plan that is found within a part of the gap is the
best one, and found for less than in all of it.
"""
_SURE = 400
"""Choices of a domain that is eliminated for sure, as far as is known before any is."""
_LIKELY = 24
_FEW = 1000
"""Values of a variable that has a choice, on average, or of all together: many such domains can be eliminated, and few
larger ones."""
AT_ONCE = 1 << 23
"""Entries of tables that are made without a bound, where a domain has few values."""
_ROUNDS = 3
"""Bounds of one domain that are taken for a proof. Where it takes more, the tables are hopelessly large mostly."""


Near = Callable[[Solved], Iterable[Domains]]
"""Small domains, each with the given plan in it."""


def nowhere(plan: Solved) -> Iterable[Domains]:
    return ()


@dataclass(frozen=True)
class Optimum:
    """The best plan found. `bound` is a lower bound on every plan of the domain; no other is better if `exact`.

    There is no `plan` where none costs less than what was known before, and that is the `cost` then.
    """

    plan: Solved | None
    cost: float
    bound: float
    exact: bool


@dataclass
class _Best:
    """The best plan known so far. Plans that are cheaper by less than `precision` of the cost need not be found.

    `managed` are the most choices of a domain that was eliminated, `too_many` the fewest of one whose tables were too
    large.
    """

    plan: Solved | None = None
    cost: float = np.inf
    precision: float = 0.0
    managed: int = _SURE
    too_many: float = np.inf

    def offer(self, solver: Solver) -> None:
        cost = float(solver.table)
        if cost < self.cost:
            self.cost, self.plan = cost, solver.solution()


def least_cost(part: Part, domains: Domains) -> float:
    """A lower bound on every plan of the domain, at a fraction of what the best plan takes to find."""
    peeled = peel(part)
    return bound_part(peeled.part, peeled.domains(domains), SWEEPS).least


def optimise(
    part: Part, domains: Domains, near: Near = nowhere, below: float = np.inf, precision: float = 0.0
) -> Optimum:
    """The plan of least cost, if that is less than `below`; or one that costs at most `precision` of its cost more.
    Where the tables are too large, the best plan that was found is improved within domains `near` it.
    """
    searched = simplify(part, domains)
    best = _Best(cost=below, precision=precision)
    bound, exact = _search(searched.part, searched.domains, best)
    plan = None if best.plan is None else searched.restored(best.plan)
    found = Optimum(plan, best.cost, min(bound, best.cost), exact)
    return found if exact else improved(part, domains, near, found)


def improved(part: Part, domains: Domains, near: Near, found: Optimum) -> Optimum:
    """Takes the best plan near the best one of a domain, until there is no better one."""
    before = np.inf
    while found.plan is not None and found.cost < before * (1 - TOLERANCE):
        before = found.cost
        for smaller in near(found.plan):
            better = optimise(part, domains.intersected(smaller), below=found.cost)
            if better.plan is not None:
                found = replace(found, plan=better.plan, cost=better.cost)
    return found


def _begin(now: Bounded, best: _Best) -> None:
    """Finds some plan among the values nearest to the bound: wider and wider, until there is one."""
    least = now.bound.least
    if not np.isfinite(least):
        return
    for gap in [least * 10.0**power for power in range(-6, 3)] + [np.inf]:
        near = now.bound.within(now.domains, gap, steadily=True).agreed(now.part)
        if not near.empty and (not _attempt(now, near, gap, best) or best.plan is not None):
            break


def _search(part: Part, domains: Domains, best: _Best) -> tuple[float, bool]:
    """Improves the best plan by those of a domain. Returns a lower bound on these, and whether none is better now.

    What costs more than the best plan is excluded. Where the rest is too much to be eliminated, the part of it nearest
    to the bound is, for a better plan or a better bound, and the bound is raised by more sweeps, while that helps.
    """
    domains = domains.agreed(part)
    if domains.empty:
        return best.cost, True
    if _choices(domains) <= _FEW:
        with suppress(TooLarge):
            best.offer(Solver(part, domains, no_limits(part), most=AT_ONCE))
            return best.cost, True
    now = bounded(part, domains)
    if best.cost == np.inf:
        _begin(now, best)
    return _raise(now, best)


def _raise(now: Bounded, best: _Best) -> tuple[float, bool]:
    """As `_search`, from a bound on. Raises it by more sweeps of what is left."""
    proved, before = -np.inf, -np.inf
    for last in (*(False,) * (_ROUNDS - 1), True):
        raised = now.bound.least - before > WORTHWHILE * now.gap(best.cost)
        before, proved = now.bound.least, max(proved, _descend(now, best))
        if best.cost * (1 - best.precision) <= proved:
            return proved, best.cost <= proved
        left = now.left(best.cost)
        if left.empty:
            return best.cost, True
        if last or not (raised or now.shrinks(left)):
            break
        now = now.on(left, best.cost)
    return proved, False


def _descend(now: Bounded, best: _Best) -> float:
    """Eliminates as much as can be of the gap between the bound and the best plan. Returns a better bound.

    Domains that are likely to be too large are left out; nothing but time depends on that.
    """
    least, gap = now.bound.least, now.gap(best.cost)
    if gap <= max(abs(least) * TOLERANCE * 2, best.precision * best.cost):
        return least + min(gap, abs(least) * TOLERANCE * 2)
    if not gap < np.inf:
        return least
    room = gap
    while room > gap * _FIRST and _choices(_near(now, room)) > best.managed:
        room /= _STEP
    while not _eliminate(now, room, best):
        room /= _STEP
        if room < gap * _LAST:
            return least
    while least + room < best.cost:
        wider = min(room * _STEP, now.gap(best.cost))
        if not _eliminate(now, wider, best):
            break
        room = wider
    return least + room


def _eliminate(now: Bounded, gap: float, best: _Best) -> bool:
    """Takes the best plan that costs at most `gap` above the bound. Whether that is likely to be possible, and is."""
    near = _near(now, gap)
    likely = near.count <= max(_LIKELY * near.open, _FEW) and _choices(near) < best.too_many
    return near.empty or (likely and _attempt(now, near, gap, best))


def _near(now: Bounded, gap: float) -> Domains:
    """What plans that cost at most `gap` above the bound may have, or more."""
    return now.bound.within(now.domains, gap).agreed(now.part)


def _choices(domains: Domains) -> int:
    """How many values there are besides one of each variable."""
    return domains.count - domains.variables


def _attempt(now: Bounded, near: Domains, gap: float, best: _Best) -> bool:
    """Takes the best plan that costs at most `gap` above the bound, if the tables are small enough; or else, where none
    is known, the best of those whose iterations do the same.
    """
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
