"""The optimum of a part: plans on few values first, then a proof that the values left out cannot do better.

Exact: a value is excluded only where a lower bound says that every plan with it costs more than one already known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from .bound import Bound, bound_part, limit_holdings
from .contract import contract
from .elimination import TooLarge
from .exact import Solved, Solver
from .part import Domains, Part, no_limits
from .peel import peel

_SWEEPS = 4
_FRACTIONS = tuple(4.0**-power for power in range(7))
"""Of the gap between the best plan and the bound: what is tried to be eliminated."""
_LIKELY = 24
_FEW = 1000
"""Values of a variable that has a choice, on average, or of all together: many such domains can be eliminated, and few
larger ones."""
_AT_ONCE = 1 << 22
"""Entries of tables that are made without a bound, where a domain has few values."""
_ROUNDS = 3
"""Bounds of one domain that are taken for a proof. Where it takes more, the tables are hopelessly large mostly."""
_WORTHWHILE = 0.1
"""Of the gap, or of the values: sweeps that raise the bound by less, and exclude less, are the last."""
TOLERANCE = 1e-9
"""Of the cost: what rounding may do to a bound."""


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
    """The best plan known so far."""

    plan: Solved | None = None
    cost: float = np.inf

    def offer(self, solver: Solver) -> None:
        cost = float(solver.table)
        if cost < self.cost:
            self.cost, self.plan = cost, solver.solution()


def least_cost(part: Part, domains: Domains) -> float:
    """A lower bound on every plan of the domain, at a fraction of what the best plan takes to find."""
    peeled = peel(part)
    return bound_part(peeled.part, peeled.domains(domains), _SWEEPS).least


def optimise(
    part: Part, domains: Domains, near: Near = nowhere, below: float = np.inf, enough: float = 0.0
) -> Optimum:
    """The plan of least cost, if that is less than `below`. Where the tables are too large, the best plan that was
    found is improved within domains `near` it. A plan at most `enough` of its cost above a bound will do.
    """
    peeled = peel(part)
    contracted = contract(peeled.part, peeled.domains(domains).agreed(peeled.part))
    best = _Best(cost=below)
    bound, exact = _search(contracted.part, contracted.domains, best, enough)
    plan = None if best.plan is None else peeled.restored(contracted.restored(best.plan))
    found = Optimum(plan, best.cost, min(bound, best.cost), exact)
    return found if exact else _improved(part, domains, near, found)


def _improved(part: Part, domains: Domains, near: Near, found: Optimum) -> Optimum:
    """Takes the best plan near the best one, until there is no better one."""
    before = np.inf
    while found.plan is not None and found.cost < before * (1 - TOLERANCE):
        before = found.cost
        for smaller in near(found.plan):
            better = optimise(part, domains.intersected(smaller), below=found.cost)
            if better.plan is not None:
                found = replace(found, plan=better.plan, cost=better.cost)
    return found


def narrowed(part: Part, domains: Domains, cost: float) -> Domains:
    """What plans that cost at most so much may have of a domain, or more: what a lower bound does not exclude."""
    peeled = peel(part)
    left, found = peeled.domains(domains).agreed(peeled.part), None
    while not left.empty:
        found = bound_part(peeled.part, left, _SWEEPS, found)
        smaller = found.within(left, cost * (1 + TOLERANCE) - found.least).agreed(peeled.part)
        if smaller.count > (1 - _WORTHWHILE) * left.count:
            return peeled.gathered(smaller)
        left = smaller
    return peeled.gathered(left)


def _begin(part: Part, domains: Domains, best: _Best) -> Bound | None:
    """Finds some plan among the values nearest to a bound, which is returned: wider and wider, until there is one."""
    if domains.empty:
        return None
    found = bound_part(part, domains, _SWEEPS)
    if not np.isfinite(found.least):
        return found
    for gap in [found.least * 10.0**power for power in range(-6, 3)] + [np.inf]:
        near = found.within(domains, gap, steadily=True).agreed(part)
        if not near.empty and (not _attempt(part, near, found, gap, best) or best.plan is not None):
            break
    return found


def _search(part: Part, domains: Domains, best: _Best, enough: float) -> tuple[float, bool]:
    """Improves the best plan by those of a domain. Returns a lower bound on these, and whether none is better now.

    What costs more than the best plan is excluded. Where the rest is too much to be eliminated, the part of it nearest
    to the bound is, for a better plan or a better bound, and the bound is raised by more sweeps, while that helps.
    """
    domains = domains.agreed(part)
    if not domains.empty and domains.count <= max(_FEW, domains.variables):
        with suppress(TooLarge):
            best.offer(Solver(part, domains, no_limits(part), most=_AT_ONCE))
            return best.cost, True
    found = _begin(part, domains, best) if best.cost == np.inf else None
    before: Bound | None = None
    proved = -np.inf
    for _ in range(_ROUNDS):
        if domains.empty:
            return best.cost, True
        if found is before:
            found = bound_part(part, domains, _SWEEPS, before)
        assert found is not None, "there is a bound of what is not empty"
        proved = max(proved, _descend(part, domains, found, best))
        if best.cost <= proved:
            return best.cost, True
        if _gap(found, best) <= enough * best.cost:
            break
        smaller = found.within(domains, _gap(found, best))
        raised = before is None or found.least - before.least > _WORTHWHILE * _gap(found, best)
        if not raised and smaller.count > (1 - _WORTHWHILE) * domains.count:
            break
        domains, before = smaller, found
    return proved, False


def _descend(part: Part, domains: Domains, found: Bound, best: _Best) -> float:
    """Eliminates as much as can be of the gap between the bound and the best plan. Returns a better bound.

    Domains that are likely to be too large are left out; nothing but time depends on that.
    """
    gap = _gap(found, best)
    if gap <= abs(found.least) * TOLERANCE * 2:
        return found.least + gap
    for fraction in _FRACTIONS if gap < np.inf else ():
        near = found.within(domains, gap * fraction).agreed(part)
        if near.empty:
            return found.least + gap * fraction
        if near.count <= max(_LIKELY * near.open, _FEW) and _attempt(part, near, found, gap * fraction, best):
            return found.least + gap * fraction
    return found.least


def _gap(found: Bound, best: _Best) -> float:
    return best.cost * (1 + TOLERANCE) - found.least


def _attempt(part: Part, domains: Domains, found: Bound, gap: float, best: _Best) -> bool:
    """Takes the best plan that costs at most `gap` above the bound, if the tables are small enough; or else the best of
    those whose iterations do the same.
    """
    try:
        limits = limit_holdings(part, found, domains, gap)
    except TooLarge:
        return False
    if limits.empty:
        return True
    try:
        best.offer(Solver(part, domains, limits))
    except TooLarge:
        if part.repeats:
            with suppress(TooLarge):
                best.offer(Solver(part, domains, limits, steadily=True))
        return False
    return True
