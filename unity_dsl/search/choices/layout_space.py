"""Layouts that each tensor may have (or their orbits under mesh symmetry), numbered, with conversion prices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...graph.graph import Value
from ...graph.layout import Layout, invariant
from ...graph.layout_conversion import divisors, move_table
from ..cost_network.bucket_elimination import Table
from ..folded_solver.materialised_layouts import two_hops
from ..folded_solver.problem_part import Layouts
from .conversion_prices import ConversionPrices, PriceTables
from .mesh_symmetry import Orbit
from .problem_scope import Scope
from .restriction import storable

TIE = 1e-12
"""Seconds by which a step more makes a plan worse: decides between equal prices, and is below what prices mean."""


_ROUNDING = 1e-9


class Space:
    """The orbits of layouts of tensors of one shape: those in mesh order that divide it, and others that operators ask
    for. Orbits have numbers; where no mesh axes may trade places a layout is an orbit, and `layouts[number]` is it.
    """

    def __init__(self, shape: tuple[int, ...], prices: ConversionPrices, scope: Scope) -> None:
        self.shape = shape
        self.prices = prices
        self.symmetry = scope.symmetry
        self.layouts: list[Layout] = []
        self._number: dict[Layout, int] = {}
        self._orbits: dict[Orbit, int] = {}
        table = move_table(divisors(shape, prices.mesh), prices.mesh)
        for layout in table.layouts[: table.in_order]:
            if scope.holds(shape, layout):
                self._add(layout)

    def add(self, layouts: Iterable[Layout]) -> None:
        """Makes sure that the layouts have numbers, with all of their orbit. Not after prices were asked for."""
        for layout in layouts:
            if layout not in self._number:
                for renamed in self.symmetry.renamed(layout):
                    self._add(renamed)

    def _add(self, layout: Layout) -> None:
        if layout in self._number:
            return
        number = self._orbits.setdefault(self.symmetry.orbit(layout), len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(layout)
        self._number[layout] = number

    def number(self, layout: Layout) -> int:
        """Raises KeyError for a layout that the tensor cannot have."""
        return self._number[layout]

    def has(self, layout: Layout) -> bool:
        return layout in self._number

    def numbers(self, layouts: Iterable[Layout]) -> Layouts:
        return np.array([self._number[layout] for layout in layouts], dtype=np.intp)

    @cached_property
    def tables(self) -> PriceTables:
        """Prices between all members of all orbits, in the order of `members`."""
        return self.prices.between(list(self._number), self.shape)

    @cached_property
    def members(self) -> Layouts:
        """By layout, those of an orbit beside each other, its place in `tables`."""
        return np.argsort(np.fromiter(self._number.values(), np.intp), kind="stable")

    def least(self, table: Table) -> Table:
        """The least of a table over members, for every pair of orbits."""
        if len(self._number) == len(self.layouts):
            return table
        numbers = np.fromiter(self._number.values(), np.intp)[self.members]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        rows = np.minimum.reduceat(table[self.members], starts, axis=0)
        return np.asarray(np.minimum.reduceat(rows[:, self.members], starts, axis=1), dtype=np.float64)

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
    most one layout between. `TIE`s are included.
    """

    direct: Table
    cheapest: Table


ConversionTable = dict[tuple[object, ...], Conversions]
"""By shape, bytes, whether there is a gradient, and the layouts in their order with what they count as."""


TensorKind = tuple[tuple[int, ...], int, bool]
"""Shape, bytes and whether there is a gradient: what conversions of a tensor depend on."""


class Spaces:
    """The spaces of all tensors of a model on a mesh. `found` are conversions known from other models."""

    def __init__(self, prices: ConversionPrices, found: ConversionTable, scope: Scope) -> None:
        self.mesh = prices.mesh
        self.prices = prices
        self.found = found
        self.scope = scope
        self._spaces: dict[tuple[int, ...], Space] = {}
        self._conversions: dict[TensorKind, Conversions] = {}

    def of(self, value: Value) -> Space:
        if value.shape not in self._spaces:
            self._spaces[value.shape] = Space(value.shape, self.prices, self.scope)
        return self._spaces[value.shape]

    def conversions(self, value: Value) -> Conversions:
        return self._of_kind((value.shape, value.bytes, value.needs_gradient))

    def _of_kind(self, kind: TensorKind) -> Conversions:
        if kind not in self._conversions:
            shape, count, needs_gradient = kind
            space = self._spaces[shape]
            everywhere = (*kind, space.symmetry, *space.layouts)
            if everywhere not in self.found:
                self.found[everywhere] = _conversions(space, count, needs_gradient)
            self._conversions[kind] = self.found[everywhere]
        return self._conversions[kind]

    @property
    def kinds(self) -> Collection[TensorKind]:
        """Of the tensors whose conversions were asked for."""
        return self._conversions.keys()

    def ways_left_out(
        self, kinds: Iterable[TensorKind], before: Spaces | None
    ) -> dict[tuple[int, ...], frozenset[Layout]]:
        """By shape, the layouts that the scope leaves out and by way of which tensors of some kinds would convert for
        less. There are none of a shape that has the layouts it had `before` others had what was left out then.
        """
        known: dict[tuple[int, ...], list[TensorKind]] = {}
        for kind in kinds:
            known.setdefault(kind[0], []).append(kind)
        ways = {}
        for shape, of_shape in known.items():
            space = self._spaces[shape]
            if before is None or space.layouts != before._spaces[shape].layouts:
                ways[shape] = frozenset(_ways_left_out(space, [(kind, self._of_kind(kind)) for kind in of_shape]))
        return {shape: layouts for shape, layouts in ways.items() if layouts}


def _conversions(space: Space, count: int, needs_gradient: bool) -> Conversions:
    there, back = _both_ways(space.tables, count)
    direct = space.least(there + back if needs_gradient else there)
    return Conversions(direct, two_hops(direct, space.without_windows))


def _both_ways(tables: PriceTables, count: int) -> tuple[Table, Table]:
    """Seconds there, `TIE`s included, and back."""
    return tables.forward(count) + TIE * tables.steps, tables.backward(count)


def _ways_left_out(space: Space, known: Iterable[tuple[TensorKind, Conversions]]) -> Iterator[Layout]:
    """`known` is what conversions cost by way of what the scope has."""
    table, size = move_table(divisors(space.shape, space.prices.mesh), space.prices.mesh), len(space.layouts)
    left_out = [layout for layout in table.layouts[: table.in_order] if not space.has(layout)]
    tables = space.prices.between([*space.layouts, *left_out], space.shape)
    for (_, count, needs_gradient), found in known:
        there, back = _both_ways(tables, count)
        direct, worth = there + back if needs_gradient else there, found.cheapest * (1 - _ROUNDING) - 2 * TIE
        for middle, layout in enumerate(left_out, size):
            if (direct[:size, middle, None] + direct[None, middle, :size] < worth).any():
                yield layout
