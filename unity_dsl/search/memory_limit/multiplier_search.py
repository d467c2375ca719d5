"""The cheapest plan within a limit of memory: a search for the Lagrange multiplier, the price of a byte held.

For any multiplier m >= 0 the least of seconds + m * (bytes - limit) over all plans is a lower bound on the seconds of
those that fit (Everett, Operations Research 11, 1963; Geoffrion, Mathematical Programming Study 2, 1974). The bound is
concave in m; between a plan that is too large and one that fits, the next multiplier is the one at which both cost the
same. What is left between the best plan and the best bound is the duality gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from ...graph.layout import Mesh
from ...graph.plan import Plan

FIRST = 0.1
"""Of a step's seconds: what all of the memory costs at the first multiplier."""
STEP = 8.0
"""How many times dearer memory gets where no plan is known that fits."""
MOST_SCOUTS, MOST_TRIES = 5, 2
"""Multipliers that are tried on coarse meshes, and then on the best one of all meshes."""
NEARLY = 1.15
"""Times the limit: what the plan of the dearest memory holds at most where one of cheaper memory may fit all the same. Bytes
are counted choice by choice in the search, and exactly of plans.
"""
COUNTED = 1.05
"""Times the limit: what a plan that fits holds at most, counted choice by choice."""
HOPELESS = 16.0
"""Times the seconds of the cheapest plan of all: what no plan is expected to take that is worth running."""
NEAR = 0.15
"""Multipliers that differ by less, of the larger one, are taken for the same."""
ENOUGH = 0.005
"""Of a plan's seconds: a gap for which no other multiplier is tried."""


@dataclass(frozen=True)
class Attempt:
    """The plan for one multiplier, with what it holds by the exact count; at `least`, were all weights gathered again
    that can be. `bounds` are lower bounds on the seconds of the plans of a mesh that hold at most the limit.
    """

    multiplier: float
    plan: Plan
    least: float
    bounds: Mapping[Mesh, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.plan.cost.seconds

    @property
    def bytes(self) -> float:
        return self.plan.cost.memory.total


@dataclass
class Tried:
    """Attempts so far, of which the first is the cheapest plan of all, which does not fit; the second, of an infinite
    multiplier, that plan with weights gathered again, which may.
    """

    limit: float
    attempts: list[Attempt]

    @property
    def best(self) -> Attempt | None:
        """The cheapest that fits."""
        return min(filter(self.fits, self.attempts), key=lambda one: one.seconds, default=None)

    @property
    def multiplier(self) -> float:
        """That of the cheapest that fits, or one at which a plan may."""
        fitting = [one for one in self.attempts if self.fits(one) and one.multiplier < inf]
        if fitting:
            return min(fitting, key=lambda one: one.seconds).multiplier
        return self.next_multiplier() or self._raised

    @property
    def first(self) -> float:
        """The multiplier that is tried where nothing is known."""
        return FIRST * self.attempts[0].seconds / self.limit

    @property
    def dearest(self) -> float:
        """The multiplier beyond which none is tried: hardly anything but bytes counts there."""
        return self.first * STEP ** (MOST_SCOUTS - 1)

    @property
    def _raised(self) -> float:
        """One at which memory is dearer than where nothing fits so far."""
        return min(max(self.first, self._last.multiplier * STEP), self.dearest)

    @property
    def _last(self) -> Attempt:
        """The dearest that does not fit."""
        beyond = (one for one in self.attempts if not self.fits(one) and one.multiplier < inf)
        return max(beyond, key=lambda one: one.multiplier)

    def fits(self, one: Attempt) -> bool:
        return one.bytes <= self.limit

    def is_out(self, mesh: Mesh) -> bool:
        """Whether a bound says that no plan of a mesh fits and is cheaper than the best one; where none is known, that
        fits in less than HOPELESS times the seconds of the cheapest of all. Bytes count as a little fewer than choice by choice.
        """
        most = HOPELESS * self.attempts[0].seconds if self.best is None else self.best.seconds
        bounds = ((one.bounds.get(mesh, 0.0), one.multiplier) for one in self.attempts if one.multiplier < inf)
        return any(bound - (COUNTED - 1) * multiplier * self.limit >= most for bound, multiplier in bounds)

    def bounds(self) -> dict[Mesh, float]:
        """The best bound of each mesh: of those that were searched at some price of memory, of that of the best plan,
        and of those that have none better.
        """
        found: dict[Mesh, float] = {}
        for one in self.attempts:
            for mesh, bound in one.bounds.items():
                found[mesh] = max(bound, found.get(mesh, bound))
        best = self.best
        searched = {mesh for one in self.attempts if one.multiplier for mesh in one.bounds}
        if best is not None:
            searched.add(best.plan.mesh)
            searched |= {mesh for mesh, bound in found.items() if bound >= best.seconds}
        return {mesh: bound for mesh, bound in found.items() if mesh in searched}

    @property
    def gap(self) -> float:
        """By how much, of its seconds, the best plan may be above the cheapest that fits; 1 where nothing is known."""
        best = self.best
        least = min(self.bounds().values(), default=0.0)
        return 1.0 if best is None else max(0.0, 1 - least / best.seconds)

    def next_multiplier(self) -> float | None:
        """Between the last plan that is too large and the first that fits; None where there is none to try."""
        last = self._last
        above = [one for one in self.attempts if self.fits(one) and one.multiplier > last.multiplier]
        if not above:
            return self._raised if last.multiplier < self.dearest else None
        following = min(above, key=lambda one: one.multiplier)
        freed = last.bytes - following.bytes
        crossing = (following.seconds - last.seconds) / freed
        return crossing if last.multiplier * (1 + NEAR) < crossing < following.multiplier * (1 - NEAR) else None


def scout_multipliers(tried: Tried, attempt: Callable[[float], Attempt], most: int) -> None:
    """As `try_multipliers`, but that at most two multipliers are tried where nothing fits: the first and the dearest, in
    this order unless the cheapest plan of all holds too much even with all weights gathered again. Then the dearest
    comes before, and the first is of use only where that nearly fits.
    """
    if tried.best is None:
        likely = tried.attempts[0].least <= tried.limit
        prices = (tried.first, tried.dearest) if likely else (tried.dearest, tried.first)
        for price in prices:
            nearly = likely or price == prices[0] or tried.attempts[-1].least <= NEARLY * tried.limit
            if tried.best is None and nearly:
                tried.attempts.append(attempt(price))
                most -= 1
    if tried.best is not None:
        try_multipliers(tried, attempt, most)


def try_multipliers(tried: Tried, attempt: Callable[[float], Attempt], most: int) -> None:
    """Adds attempts, at most so many, while another multiplier may lead to a cheaper plan that fits. Where none is
    known that does, memory gets dearer step by step.
    """
    for _ in range(most):
        if tried.gap <= ENOUGH or (multiplier := tried.next_multiplier()) is None:
            return
        tried.attempts.append(attempt(multiplier))
