"""Reduced-cost filtering: removes values whose reduced cost exceeds the gap, and bounds again.

F. Focacci, A. Lodi and M. Milano, Cost-based domain filtering, CP 1999."""

from __future__ import annotations

from dataclasses import dataclass

from .lower_bounds import Bound, bound_part
from .problem_part import Domains, Part

SWEEPS = 4
WORTHWHILE = 0.1
"""A fraction of the values and of the gap. A round is the last one if it excludes a smaller fraction of the values and
raises the bound by a smaller fraction of the gap.
"""
TOLERANCE = 1e-9
"""A fraction of the cost: the error of a bound by rounding."""


@dataclass(frozen=True)
class Bounded:
    """A domain and its bound."""

    part: Part
    domains: Domains
    bound: Bound

    def gap(self, cost: float) -> float:
        """By how much a plan of this cost may exceed the bound."""
        return cost * (1 + TOLERANCE) - self.bound.least

    def left(self, cost: float) -> Domains:
        """The values that plans of at most this cost may have, or more."""
        return self.bound.within(self.domains, self.gap(cost)).agreed(self.part)

    def shrinks(self, left: Domains) -> bool:
        """Whether enough was excluded to make a new bound worthwhile."""
        return left.count <= (1 - WORTHWHILE) * self.domains.count

    def on(self, left: Domains) -> Bounded:
        """Continues with what is left."""
        return Bounded(self.part, left, bound_part(self.part, left, SWEEPS, self.bound))


def bounded(part: Part, domains: Domains) -> Bounded:
    return Bounded(part, domains, bound_part(part, domains, SWEEPS))
