"""Cheapest paths of single steps between layouts, as (min, +) closures of tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from ..graph.layout_codes import INVARIANT
from .min_plus import OuterSums, finite, restore_infinity
from .price import Table
from .step_prices import StepPrices


class Paths:
    """Seconds of the cheapest paths of single steps of a tensor of `count` bytes, computed on first request.

    In a bucketed sum the tensor is part of `gradient_bytes`, and the fraction `exposed` of the sum's seconds counts. An
    all-gather that is the first step may be prefetched; then only a fraction of its seconds counts, too.

    Most requests are for the first layouts, those in mesh order. Paths between these may pass other layouts, which are
    eliminated first. On all paths the tensor stays Invariant along the mesh axes `kept`.
    """

    def __init__(
        self, prices: StepPrices, count: float, gradient_bytes: float, exposed: float, kept: tuple[int, ...] = ()
    ) -> None:
        self.single = prices.seconds(count)
        if kept:
            leaves = (prices.steps.layouts.kind[:, list(kept)] != INVARIANT).any(axis=1)
            self.single[leaves[:, None] | leaves] = np.inf
        self._prices = prices
        self._sums = count, gradient_bytes, exposed

    @cached_property
    def cheapest(self) -> Table:
        """Seconds between all layouts. Shape [layouts, layouts]."""
        return closed(self.single)

    @cached_property
    def last(self) -> Table:
        """Seconds of the single steps that are bucketed sums, infinite for others. Shape [layouts, layouts]."""
        return self._prices.sums_in_buckets(*self._sums)

    @cached_property
    def ending(self) -> Table:
        """As `cheapest`, but a last sum may be bucketed."""
        return _ended(self.cheapest, self.last)

    @cached_property
    def cheapest_in_order(self) -> Table:
        """Seconds between the layouts in mesh order. Shape [layouts in order, layouts in order]."""
        return closed(self._eliminated[: self._prices.ordered, : self._prices.ordered])

    @cached_property
    def ending_in_order(self) -> Table:
        """As `cheapest_in_order`, but a last sum may be bucketed."""
        last, ordered = self.last[:, : self._prices.ordered].copy(), self._prices.ordered
        for middle in reversed(range(ordered, len(last))):
            if (last[middle] < np.inf).any():
                onward = self._eliminated[:middle, middle, None] + last[middle]
                np.minimum(last[:middle], onward, out=last[:middle])
        return _ended(self.cheapest_in_order, last[:ordered])

    def beginning(self, exposed: float) -> Table:
        """As `cheapest`, but only the fraction `exposed` of a first all-gather counts."""
        return _begun(self.cheapest, self._first(exposed))

    def beginning_in_order(self, exposed: float) -> Table:
        """As `beginning`, between the layouts in mesh order, from which all-gathers lead only to such layouts."""
        ordered = self._prices.ordered
        return _begun(self.cheapest_in_order, self._first(exposed)[:ordered, :ordered])

    def gathering(self, start: int, end: int, exposed: float) -> tuple[float, int]:
        """Seconds of the cheapest path whose first step is an all-gather, and the layout after that step. Only the
        fraction `exposed` of the all-gather counts; the seconds are infinite if that is the whole.
        """
        if exposed >= 1:
            return np.inf, start
        found = np.where(self._prices.gathers[start], exposed * self.single[start], np.inf) + self.cheapest[:, end]
        after = int(found.argmin())
        return float(found[after]), after

    def _first(self, exposed: float) -> Table:
        """The fraction `exposed` of the seconds of single steps that are all-gathers, infinite for others. Shape
        [layouts, layouts].
        """
        return np.where(self._prices.gathers, exposed * self.single, np.inf)

    @cached_property
    def _eliminated(self) -> Table:
        """Cheapest paths through layouts not in mesh order. An entry [i, j], i before j, only uses layouts after j."""
        ordered = self._prices.ordered
        found, columns = _by_way_of(reversed(range(ordered, len(self.single))), self.single)
        found[:, ordered:] = columns[:, ordered:]
        return found


def closed(single: Table) -> Table:
    """The cheapest paths between all pairs (Floyd, Warshall)."""
    return _by_way_of(range(len(single)), single)[0]


def _by_way_of(middles: Iterable[int], single: Table) -> tuple[Table, Table]:
    """The cheapest paths through the `middles`, taken one after the other, and a table with the column of each as it
    was in its turn.
    """
    found, through = finite(single), OuterSums(*single.shape)
    columns = found.copy()
    for middle in middles:
        columns[:, middle] = found[:, middle]
        np.minimum(found, through.of(found[:, middle], found[middle]), out=found)
    restore_infinity(found, columns)
    return found, columns


def _ended(cheapest: Table, last: Table) -> Table:
    """The cheapest paths, which may end with one of the `last` steps."""
    found = cheapest.copy()
    for middle in np.flatnonzero((last < np.inf).any(axis=1)):
        np.minimum(found, cheapest[:, middle, None] + last[middle], out=found)
    return found


def _begun(cheapest: Table, first: Table) -> Table:
    """The cheapest paths, which may begin with one of the `first` steps."""
    found = cheapest.copy()
    for middle in np.flatnonzero((first < np.inf).any(axis=0)):
        some = np.flatnonzero(first[:, middle] < np.inf)
        found[some] = np.minimum(found[some], first[some, middle, None] + cheapest[middle])
    return found
