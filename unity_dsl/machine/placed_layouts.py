"""Conversions of layouts on one coordinate of a mesh axis, by way of layouts on all coordinates.

A tensor that moves onto a coordinate is first copied to all devices; the other copies are dropped. A tensor that leaves
the coordinate becomes a term of a sum in which the other devices have zeros. A tensor that stays on one coordinate is
converted by its devices alone, and stays there on the whole path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..graph.collective_steps import Step, StepKind
from ..graph.layout import Invariant, Layout, Mesh, Partial, Placement
from .collective_price import local_fraction, local_price
from .machine import Machine
from .price import Places, Table
from .step_prices import TIE


@dataclass(frozen=True)
class Way:
    """The first steps of a conversion, then the source and target of the rest, Invariant along the `kept` axes."""

    leaving: tuple[Step, ...]
    source: Layout
    target: Layout
    kept: tuple[int, ...]


def way_between(source: Layout, target: Layout, mesh: Mesh) -> Way:
    """The way from one layout to another, neither with a Replicate."""
    before, after = source.placement, target.placement
    if before == after:
        kept = tuple(axis for axis, _ in before)
        return Way((), source.everywhere(Invariant()), target.everywhere(Invariant()), kept)
    leaving = (leaving_step(before, mesh),) if before else ()
    return Way(leaving, source.everywhere(Partial()), target.everywhere(Invariant()), ())


def leaving_step(placement: Placement, mesh: Mesh) -> Step:
    """The step by which other devices get zeros: the value becomes a sum, with itself as one term."""
    axes, member = tuple(axis for axis, _ in placement), 0
    for axis, coordinate in placement:
        member = member * mesh.axes[axis].degree + coordinate
    return Step(StepKind.MASK, axes, member=member)


@dataclass(frozen=True, eq=False)
class PlacedLayouts:
    """Layouts some of which are on one coordinate. `around` are the layouts on all coordinates by way of which they are
    converted. For each layout, `leaves` and `entered` are the places there of the ones by which it is left and entered.
    `latency` and `per_byte` are the price of leaving. `together` lists the places of layouts on the same devices, with
    the axes of their placement.
    """

    around: tuple[Layout, ...]
    leaves: Places
    entered: Places
    latency: Table
    per_byte: Table
    together: tuple[tuple[tuple[int, ...], Places], ...]

    def seconds(self, count: float, between: Callable[[tuple[int, ...]], Table]) -> Table:
        """Seconds one way between every ordered pair of the layouts of a tensor of `count` bytes. `between` returns the
        seconds between the layouts `around`, by paths that are Invariant along given axes.
        """
        found = between(())[np.ix_(self.leaves, self.entered)] + (self.latency + self.per_byte * count)[:, None]
        for kept, places in self.together:
            numbers = self.entered[places]
            found[np.ix_(places, places)] = between(kept)[np.ix_(numbers, numbers)]
        return np.asarray(found)


def placed_layouts(layouts: Sequence[Layout], mesh: Mesh, machine: Machine) -> PlacedLayouts | None:
    """How these layouts are converted; None if all of them are on all devices."""
    placements = dict.fromkeys(layout.placement for layout in layouts)
    if not any(placements):
        return None
    around: dict[Layout, int] = {}

    def places(kind: Partial | Invariant) -> Places:
        found = [around.setdefault(layout.everywhere(kind), len(around)) for layout in layouts]
        return np.array(found, dtype=np.intp)

    leaves, entered = places(Partial()), places(Invariant())
    (zeros,) = local_price(machine, 1).algorithms
    placed = np.array([bool(layout.placement) for layout in layouts])
    held = np.array([local_fraction(layout, mesh) for layout in layouts])
    together = []
    for placement in filter(None, placements):
        here = [number for number, layout in enumerate(layouts) if layout.placement == placement]
        together.append((tuple(axis for axis, _ in placement), np.array(here, dtype=np.intp)))
    return PlacedLayouts(
        tuple(around),
        leaves,
        entered,
        np.where(placed, zeros.latency + TIE, 0.0),
        np.where(placed, zeros.per_byte * held, 0.0),
        tuple(together),
    )
