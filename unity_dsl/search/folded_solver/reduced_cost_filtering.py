"""Reduced-cost filtering: removes values whose reduced cost exceeds the gap, and bounds again.

F. Focacci, A. Lodi and M. Milano, Cost-based domain filtering, CP 1999."""

from __future__ import annotations

from dataclasses import dataclass

from .lower_bounds import Bound, bound_part
from .problem_part import Domains, Part

SWEEPS = 4
WORTHWHILE = 0.1
"""Of the values, or of the gap: what excludes less of them, and raises the bound by less, is the last."""
TOLERANCE = 1e-9
"""Of the cost: what rounding may do to a bound."""


@dataclass(frozen=True)
class Bounded:
    """A domain and a bound of it."""

    part: Part
    domains: Domains
    bound: Bound

    def gap(self, cost: float) -> float:
        """By how much a plan of that cost may exceed the bound."""
        return cost * (1 + TOLERANCE) - self.bound.least

    def left(self, cost: float) -> Domains:
        """What plans that cost at most so much may have, or more."""
        return self.bound.within(self.domains, self.gap(cost)).agreed(self.part)

    def shrinks(self, left: Domains) -> bool:
        """Whether enough was excluded for the bound of what is left to be worthwhile."""
        return left.count <= (1 - WORTHWHILE) * self.domains.count

    def on(self, left: Domains) -> Bounded:
        """Goes on with what is left."""
        return Bounded(self.part, left, bound_part(self.part, left, SWEEPS, self.bound))


def bounded(part: Part, domains: Domains) -> Bounded:
    return Bounded(part, domains, bound_part(part, domains, SWEEPS))
