"""The cheapest plan within a limit of memory: a search for the Lagrange multiplier, the price of a byte held.

For any multiplier m >= 0 the least of seconds + m * (bytes - limit) over all plans is a lower bound on the seconds of
plans that fit (Everett, Operations Research 11, 1963; Geoffrion, Mathematical Programming Study 2, 1974). The bound is
concave in m. Between a plan that is too large and one that fits, the next multiplier is the one at which both cost the
same. The difference between the best plan and the best bound is the duality gap. A mesh whose bound is above the best
plan that fits is left out at all other multipliers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt

from ...graph.layout import Mesh
from ...graph.plan import Plan
from ..constants import (
    COUNTED_FITS,
    ENOUGH,
    FAR_TOO_LARGE,
    FIRST_PRICE,
    LEAST_PRICE,
    MOST_SCOUTS,
    NEARLY_FITS,
    PRICE_STEP,
    PRUNED_LIMITED,
    SAME_PRICE,
)


@dataclass(frozen=True)
class Bounds:
    """Lower bounds, by mesh, on the seconds of plans that fit the limit, found at one multiplier."""

    multiplier: float
    by_mesh: Mapping[Mesh, float]


@dataclass(frozen=True)
class Attempt:
    """The plan for one multiplier, with its bytes counted exactly; `least` are its bytes with all weights re-gathered
    that can be. `bounds` are lower bounds, by mesh, on the seconds of plans that fit the limit.
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


Try = Callable[[float, float], Attempt | Bounds]
"""The best plan for a multiplier, if its cost, with what it pays for memory, is below a cutoff; only bounds
if none is.
"""


@dataclass
class Tried:
    """The attempts so far. The first is the cheapest plan of all, which does not fit. The second, of an infinite
    multiplier, may fit: that plan with weights re-gathered, or another one. `exhausted` are the bounds of multipliers
    at which no plan could improve the incumbent. `worth` is memory's average shadow price, in seconds a byte.
    """

    limit: float
    attempts: list[Attempt]
    exhausted: list[Bounds] = field(default_factory=list)
    worth: float = 0.0

    @property
    def best(self) -> Attempt | None:
        """The cheapest attempt that fits."""
        return min(filter(self.fits, self.attempts), key=lambda one: one.seconds, default=None)

    @property
    def multiplier(self) -> float:
        """The multiplier of the cheapest attempt that fits, or one at which a plan may fit."""
        fitting = [one for one in self.attempts if self.fits(one) and one.multiplier < inf]
        if fitting:
            return min(fitting, key=lambda one: one.seconds).multiplier
        return self.next_multiplier() or self._raised

    @property
    def first(self) -> float:
        """The multiplier that is tried where nothing is known."""
        return max(self.worth, FIRST_PRICE * self.attempts[0].seconds / self.limit)

    @property
    def dearest(self) -> float:
        """The largest multiplier that is tried: hardly anything but bytes counts there."""
        return self.first * PRICE_STEP ** (MOST_SCOUTS - 1)

    @property
    def _raised(self) -> float:
        """A multiplier at which memory costs more than at any where nothing fits so far, at most `dearest`."""
        return min(max(self.first, self._last.multiplier * PRICE_STEP), self.dearest)

    @property
    def _last(self) -> Attempt:
        """The attempt of the largest multiplier that does not fit."""
        beyond = (one for one in self.attempts if not self.fits(one) and one.multiplier < inf)
        return max(beyond, key=lambda one: one.multiplier)

    def fits(self, one: Attempt) -> bool:
        return one.bytes <= self.limit

    @property
    def of_use(self) -> float:
        """The seconds below which a plan that fits improves the incumbent, or is worth running if there is none."""
        return PRUNED_LIMITED * self.attempts[0].seconds if self.best is None else self.best.seconds

    @property
    def least(self) -> float:
        """The least bytes that a plan holds, or less: bounds account for plans that no search has found."""
        found = min(one.least for one in self.attempts)
        for one in self.exhausted:
            if one.multiplier and one.by_mesh:
                found = min(found, self.limit + (min(one.by_mesh.values()) - self.of_use) / one.multiplier)
        return found

    def below(self, multiplier: float) -> float:
        """The cutoff at a multiplier, which includes what a plan pays for memory: a plan below it improves the
        incumbent if it fits.
        """
        return self.of_use + multiplier * COUNTED_FITS * self.limit

    def is_out(self, mesh: Mesh) -> bool:
        """Whether no plan of a mesh can fit and improve the incumbent. A plan's bytes may count as a little more than
        the limit.
        """
        more = (COUNTED_FITS - 1) * self.limit
        return any(one.by_mesh.get(mesh, 0.0) - more * one.multiplier >= self.of_use for one in self._bounds)

    @property
    def _bounds(self) -> list[Bounds]:
        return [*(Bounds(one.multiplier, one.bounds) for one in self.attempts if one.bounds), *self.exhausted]

    def bounds(self) -> dict[Mesh, float]:
        """The best bound of each mesh that was searched at some price of memory, of that of the best plan, and of those
        that have no better plan.
        """
        best, found = self.best, self._known
        searched = {mesh for one in self._bounds if one.multiplier for mesh in one.by_mesh}
        if best is not None:
            searched.add(best.plan.mesh)
            searched |= {mesh for mesh, bound in found.items() if bound >= best.seconds}
        return {mesh: bound for mesh, bound in found.items() if mesh in searched and bound > 0}

    @property
    def gap(self) -> float:
        """How far the best plan may be above the cheapest that fits, as a fraction of its seconds; 1 where nothing is
        known.
        """
        return self.gap_on(self.bounds())

    def gap_on(self, meshes: Iterable[Mesh]) -> float:
        """The same for plans on these meshes."""
        best, known = self.best, self._known
        least = min((known.get(mesh, 0.0) for mesh in meshes), default=0.0)
        return 1.0 if best is None else max(0.0, 1 - least / best.seconds)

    @property
    def _known(self) -> dict[Mesh, float]:
        """The best bound of each mesh."""
        found: dict[Mesh, float] = {}
        for one in self._bounds:
            for mesh, bound in one.by_mesh.items():
                found[mesh] = max(bound, found.get(mesh, 0.0))
        return found

    def next_multiplier(self) -> float | None:
        """The next multiplier, between the last plan that is too large and the first that fits; None if there is none
        to try.
        """
        last = self._last
        above = [one for one in self.attempts if self.fits(one) and one.multiplier > last.multiplier]
        if not above:
            return self._raised if last.multiplier < self.dearest else None
        following = min(above, key=lambda one: one.multiplier)
        freed = last.bytes - following.bytes
        paid = self.worth if following.multiplier > self.worth * (1 + SAME_PRICE) else LEAST_PRICE * self.worth
        crossing = max(paid, (following.seconds - last.seconds) / freed)
        least, most = last.multiplier * (1 + SAME_PRICE), following.multiplier * (1 - SAME_PRICE)
        return crossing if least < crossing < most else None

    def add(self, search: Try, multiplier: float) -> bool:
        """Tries a multiplier. Returns whether there is a plan that improves the incumbent if it fits."""
        found = search(multiplier, self.below(multiplier))
        if isinstance(found, Attempt):
            self.attempts.append(found)
            return True
        self.exhausted.append(found)
        return False


def scout_multipliers(tried: Tried, search: Try, meshes: Sequence[Mesh], most: int, far: float = inf) -> None:
    """As `try_multipliers`, but if nothing fits, at most three multipliers are tried before: `first`, `dearest` and
    their geometric mean. `dearest` comes before `first` if the cheapest plan of all holds too much even with all
    weights re-gathered; if memory's shadow price is known, far too much. Multipliers after `dearest` are tried only if
    a plan nearly fits. No others follow if the plan that fits takes at least `far` times the seconds of the cheapest
    plan of all.
    """
    if tried.best is None:
        likely = tried.attempts[0].least <= tried.limit * (FAR_TOO_LARGE if tried.worth else 1)
        prices = (tried.first, tried.dearest) if likely else (tried.dearest, tried.first)
        sure = prices if likely else prices[:1]
        for price in (*prices, sqrt(tried.first * tried.dearest)):
            least = min((one.least for one in tried.attempts[2:]), default=inf)
            if tried.best is None and (price in sure or least <= NEARLY_FITS * tried.limit):
                if not tried.add(search, price):
                    return
                most -= 1
    if tried.best is not None and tried.best.seconds < far * tried.attempts[0].seconds:
        try_multipliers(tried, search, meshes, most)


def try_multipliers(tried: Tried, search: Try, meshes: Sequence[Mesh], most: int) -> None:
    """Adds at most `most` attempts, while another multiplier may lead to a cheaper plan on these meshes that fits.
    While no plan is known that fits, the price of memory rises step by step.
    """
    for _ in range(most):
        if (
            tried.gap_on(meshes) <= ENOUGH
            or (multiplier := tried.next_multiplier()) is None
            or not tried.add(search, multiplier)
        ):
            return
