"""The optimum of a part: plans on few values first, then a proof that the values left out cannot do better.

Exact: a value is excluded only where a lower bound says that every plan with it costs more than one already known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .bound import Bound, bound_part, limit_holdings
from .elimination import TooLarge
from .exact import Solved, Solver
from .part import Domains, Limits, Part, unlimited
from .peel import Peeled, peel

_SWEEPS = 3
_WORTHWHILE = 0.8
"""A round that leaves more than this is the last of its kind."""
_FEW = 500
"""Values of all variables together that are tried without further ado."""
_TOLERANCE = 1e-9
"""Of the cost: what rounding may do to a bound."""


Near = Callable[[Solved], Iterable[Domains]]
"""Small domains, each with the given plan in it."""


@dataclass(frozen=True)
class Optimum:
    """The best plan found. `bound` is a lower bound on every plan of the domain; no other is better if `exact`."""

    plan: Solved
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
    return bound_part(peeled.part, peeled.domains(domains), unlimited(peeled.part), _SWEEPS, star=True).least


def optimise(part: Part, domains: Domains, coarse: Sequence[Domains], near: Near = lambda plan: ()) -> Optimum | None:
    """The plan of least cost, or None if there is none. `coarse` are smaller domains, tried until one has a plan: the
    better it is, the more can be excluded of the others. Where the tables of the whole are too large, the best plan is
    improved within domains `near` it.
    """
    peeled = peel(part)
    best = _Best()
    for smaller in coarse:
        if best.plan is None:
            _search(peeled.part, peeled.domains(domains.intersected(smaller)), best)
    bound, exact = _search(peeled.part, peeled.domains(domains), best)
    if not exact:
        _improve(peeled, domains, near, best)
    if best.plan is None:
        return None
    return Optimum(peeled.restored(best.plan), best.cost, min(bound, best.cost), exact)


def _improve(peeled: Peeled, domains: Domains, near: Near, best: _Best) -> None:
    """Takes the best plan near the best one, until there is no better one."""
    before = np.inf
    while best.plan is not None and best.cost < before * (1 - _TOLERANCE):
        before = best.cost
        for smaller in near(peeled.restored(best.plan)):
            _search(peeled.part, peeled.domains(domains.intersected(smaller)), best)


def _search(part: Part, domains: Domains, best: _Best) -> tuple[float, bool]:
    """Improves the best plan by those of a domain. Returns a lower bound on these, and whether none is better now."""
    limits = unlimited(part)
    domains = domains.agreed(part)
    if domains.empty:
        return np.inf, True
    found = bound_part(part, domains, limits, _SWEEPS, star=True)
    if not np.isfinite(found.least):
        return np.inf, True
    if best.plan is None:
        _descend(part, domains, limits, found, best, [found.least * 10.0**power for power in range(-6, 3)] + [np.inf])
    while (smaller := found.within(domains, limits, _gap(found, best))[0]).count < domains.count * _WORTHWHILE:
        domains = smaller
        if domains.empty:
            return best.cost, True
        found = bound_part(part, domains, limits, _SWEEPS, star=True)
    if not np.isfinite(best.cost):
        return found.least, _attempt(part, domains, limits, best)
    limits = limit_holdings(part, domains, found, _gap(found, best))
    while domains.count + limits.count > _FEW:
        found = bound_part(part, domains, limits, _SWEEPS, star=False)
        gap = _gap(found, best)
        _descend(part, domains, limits, found, best, (gap / 256, gap / 64, gap / 16, gap / 4))
        smaller, fewer = found.within(domains, limits, _gap(found, best))
        if smaller.empty or found.least >= best.cost:
            return best.cost, True
        before, after = domains.count + limits.count, smaller.count + fewer.count
        domains, limits = smaller, fewer
        if after > before * _WORTHWHILE:
            break
    return found.least, _attempt(part, domains, limits, best)


def _gap(found: Bound, best: _Best) -> float:
    return best.cost * (1 + _TOLERANCE) - found.least


def _attempt(part: Part, domains: Domains, limits: Limits, best: _Best) -> bool:
    """Takes the best plan of a domain, if its tables are small enough."""
    try:
        best.offer(Solver(part, domains, limits))
    except TooLarge:
        return False
    return True


def _descend(part: Part, domains: Domains, limits: Limits, found: Bound, best: _Best, gaps: Iterable[float]) -> None:
    """Plans on the values nearest to the bound: good ones are among them. Wider and wider, until there is one."""
    before = best.cost
    for gap in gaps:
        near, held = found.within(domains, limits, gap, steadily=True)
        near = near.agreed(part)
        if not near.empty and (not _attempt(part, near, held, best) or best.cost < before):
            return
