"""Per tensor, the layouts it may have, their numbers, and what conversions between them cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..graph.conversion import divisors, move_table
from ..graph.graph import Value
from ..graph.layout import Layout, Mesh, invariant
from .conversion_prices import ConversionPrices, PriceTables
from .elimination import Table
from .holding import two_hops
from .part import Layouts
from .restriction import storable

TIE = 1e-12
"""Seconds by which a step more makes a plan worse: decides between equal prices, and is below what prices mean."""


class Space:
    """The layouts of tensors of one shape: those in mesh order that divide it, and others that operators ask for."""

    def __init__(self, shape: tuple[int, ...], prices: ConversionPrices) -> None:
        self.shape = shape
        self.prices = prices
        table = move_table(divisors(shape, prices.mesh), prices.mesh)
        self.layouts: list[Layout] = list(table.layouts[: table.in_order])
        self._number = {layout: i for i, layout in enumerate(self.layouts)}

    def add(self, layouts: Iterable[Layout]) -> None:
        """Makes sure that the layouts have numbers. Not after prices were asked for."""
        for layout in layouts:
            if layout not in self._number:
                self._number[layout] = len(self.layouts)
                self.layouts.append(layout)

    def number(self, layout: Layout) -> int:
        """Raises KeyError for a layout that the tensor cannot have."""
        return self._number[layout]

    def has(self, layout: Layout) -> bool:
        return layout in self._number

    def numbers(self, layouts: Iterable[Layout]) -> Layouts:
        return np.array([self._number[layout] for layout in layouts], dtype=np.intp)

    @cached_property
    def tables(self) -> PriceTables:
        return self.prices.between(self.layouts, self.shape)

    @cached_property
    def without_windows(self) -> Layouts:
        """What conversions may go by way of: windows are entered from slices and left to them, which never pays."""
        return np.array([i for i, layout in enumerate(self.layouts) if not layout.overlaps], dtype=np.intp)

    @cached_property
    def invariant(self) -> int:
        return self._number[invariant(self.prices.mesh)]

    @cached_property
    def storable(self) -> Layouts:
        """Layouts in which parameters are kept: Invariant or Shard, so that a gradient arrives as its parameter is."""
        return np.array([i for i, layout in enumerate(self.layouts) if storable(layout)], dtype=np.intp)


@dataclass(frozen=True)
class Conversions:
    """Prices for one kind of tensor: `direct` there and back (only there without gradient), `cheapest` by way of at
    most one layout between, `leaving` out of the program: to Invariant, never back. `TIE`s are included.
    """

    direct: Table
    cheapest: Table
    leaving: Table


ConversionTable = dict[tuple[object, ...], Conversions]
"""By shape, bytes, whether there is a gradient, and the layouts in their order."""


class Spaces:
    """The spaces of all tensors of a model on a mesh. `found` are conversions known from other models."""

    def __init__(self, mesh: Mesh, prices: ConversionPrices, found: ConversionTable) -> None:
        self.mesh = mesh
        self.prices = prices
        self.found = found
        self._spaces: dict[tuple[int, ...], Space] = {}
        self._conversions: dict[tuple[tuple[int, ...], int, bool], Conversions] = {}

    def of(self, value: Value) -> Space:
        if value.shape not in self._spaces:
            self._spaces[value.shape] = Space(value.shape, self.prices)
        return self._spaces[value.shape]

    def conversions(self, value: Value) -> Conversions:
        key = value.shape, value.bytes, value.needs_gradient
        if key not in self._conversions:
            space = self.of(value)
            everywhere = (*key, *space.layouts)
            if everywhere not in self.found:
                self.found[everywhere] = _conversions(space, value)
            self._conversions[key] = self.found[everywhere]
        return self._conversions[key]


def _conversions(space: Space, value: Value) -> Conversions:
    there = space.tables.forward(value.bytes)
    direct = there + TIE * space.tables.steps
    if value.needs_gradient:
        direct = direct + space.tables.backward(value.bytes)
    leaving = (there + TIE * space.tables.steps)[:, space.invariant]
    return Conversions(direct, two_hops(direct, space.without_windows), leaving)
