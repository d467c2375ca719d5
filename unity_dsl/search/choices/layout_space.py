"""Layouts that each tensor may have, numbered, with conversion prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...graph.graph import Value
from ...graph.layout import PARTITION, Invariant, Layout, Partial, Replicate, Shard, invariant
from ...graph.layout_codes import layouts_in_order
from ...graph.layout_conversion import divisors
from ...graph.operand_layouts import LayoutColumn
from ...graph.prefetched_gathers import sums_back
from ...machine.collective_price import local_fraction
from ...machine.conversion_model import ConversionModel, Located
from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Layouts
from .axis_choices import AxisChoices, axis_choices, kinds_along
from .restriction import Keeping, storable


class ConversionOverlap(NamedTuple):
    """The work that overlaps with a tensor's conversions, and the fraction of them that is still exposed.

    By default this is about a leading all-gather, as of a weight: only the fraction `exposed` counts. With `if_summed`
    that holds only if the gradient is summed over devices; other gathers count in full. `interleaved` values are in
    interleaved repeats: conversions of any kind count by `exposed`, there and back, if both take time. A product takes
    `read` seconds on a device if it reads the value, `made` seconds if it makes it. It overlaps that much of a gather
    of rows, or of a sum, and of the way back. At least the fraction `exposed` still counts.
    """

    exposed: float = 1.0
    if_summed: bool = False
    interleaved: bool = False
    read: float = 0.0
    made: float = 0.0

    def of(self, source: Layout, target: Layout) -> float:
        """The exposed fraction of an all-gather from the layout in which a weight is stored."""
        return self.exposed if not self.if_summed or sums_back(source, target) else 1.0

    def of_both(self, there: Table | float, back: Table | float) -> Table:
        """The exposed fraction of conversions in interleaved repeats, given their seconds there and back."""
        return np.where(np.minimum(there, back) > LOCAL, self.exposed, 1.0)

    @property
    def by_products(self) -> bool:
        return self.read > 0 or self.made > 0

    def beside(self, seconds: Table | float, sources: AxisChoices, targets: AxisChoices) -> Table:
        """The exposed seconds of conversions, there or back, that take `seconds` and overlap with a product. `sources`
        and `targets` say what the layouts are along every mesh axis, as in `Space.along`.
        """
        same, moved = sources == targets, (sources != targets).any(axis=-1)
        gathers = (same | ((sources == _ROWS) & (targets == _COPY))).all(axis=-1) & moved
        sums = (same | ((sources == _TERM) & np.isin(targets, (_ROWS, _COPY, _ONE)))).all(axis=-1) & moved
        hiding = np.where(gathers, self.read, np.where(sums, self.made, 0.0))
        return np.maximum(seconds - hiding, np.where(gathers | sums, self.exposed, 1.0) * seconds)


_ONE, _COPY, _TERM, _ROWS = (
    int(axis_choices([kinds_along(Layout((kind,)))])[0, 0]) for kind in (Invariant(), Replicate(), Partial(), Shard(0))
)
"""Role numbers of the kinds that a layout has along a mesh axis."""
NO_OVERLAP = ConversionOverlap()
LOCAL = 1e-9
"""Seconds. A conversion that takes no more sends nothing."""


class Space:
    """The layouts of tensors of one shape: those in mesh order that divide it, and others that operators ask for.

    `layouts[number]` is the layout of a number.
    """

    def __init__(
        self, shape: tuple[int, ...], prices: ConversionModel, layouts: Iterable[Layout] | None = None
    ) -> None:
        """`layouts`, if given, replace those that divide the shape."""
        self.shape = shape
        self.prices = prices
        if layouts is None:
            layouts = layouts_in_order(divisors(shape, prices.mesh), prices.mesh)
        self.layouts: list[Layout] = list(layouts)
        self._number = {layout: number for number, layout in enumerate(self.layouts)}
        self._columns: dict[int, tuple[LayoutColumn, Layouts]] = {}

    def add(self, layouts: Iterable[Layout]) -> None:
        """Gives a number to each of these layouts that has none. Must not be called after prices were asked for."""
        for layout in layouts:
            if layout not in self._number:
                self._number[layout] = len(self.layouts)
                self.layouts.append(layout)

    def of_column(self, column: LayoutColumn) -> Layouts:
        """The number of every configuration's layout. New layouts get numbers. The result is cached by the column
        object.
        """
        if id(column) not in self._columns:
            self.add(column.layouts)
            self._columns[id(column)] = column, self.numbers(column.layouts)[column.index]
        return self._columns[id(column)][1]

    def number(self, layout: Layout) -> int:
        """Raises KeyError for a layout that the tensor cannot have."""
        return self._number[layout]

    def has(self, layout: Layout) -> bool:
        return layout in self._number

    def numbers(self, layouts: Iterable[Layout]) -> Layouts:
        return np.array([self._number[layout] for layout in layouts], dtype=np.intp)

    def seconds(
        self, count: int, back: int | None, *, overlap: ConversionOverlap = NO_OVERLAP, in_buckets: bool = False
    ) -> Table:
        """Seconds of converting a tensor of `count` bytes, and its gradient of `back` bytes back if it has one, for
        every pair of layouts. `overlap` says what overlaps with both. Sums on the way back may be `in_buckets`.
        """
        there = self.forward_seconds(count)
        if overlap.interleaved:
            if back is None:
                return there
            returning = self.prices.seconds(self._transposed, back, in_buckets=in_buckets).T
            return overlap.of_both(there, returning) * (there + returning)
        if overlap.by_products:
            along = self.along[:, None, :], self.along[None, :, :]
            there = overlap.beside(there, *along)
            if back is None:
                return there
            return there + overlap.beside(self.prices.seconds(self._transposed, back).T, *along)
        if overlap.exposed != 1:
            begun = self.forward_seconds(count, begun=overlap.exposed)
            there = np.where(self.summed_back, begun, there) if overlap.if_summed else begun
        if back is None:
            return there
        return there + self.prices.seconds(self._transposed, back, in_buckets=in_buckets).T

    def alike(self, back: int | None) -> tuple[Located, Located | None]:
        """The arguments, besides bytes, on which prices of conversions and of those back depend."""
        return self._located, None if back is None else self._transposed

    def forward_seconds(self, count: int, *, begun: float = 1.0) -> Table:
        """Seconds of conversions without the gradient's way back. A leading all-gather counts by the part `begun`."""
        return self.prices.seconds(self._located, count, begun=begun)

    @cached_property
    def _located(self) -> Located:
        return self.prices.located(self.layouts, self.shape)

    @cached_property
    def _transposed(self) -> Located:
        return self.prices.located([layout.transpose for layout in self.layouts], self.shape)

    @cached_property
    def along(self) -> AxisChoices:
        """The role number of each layout along every mesh axis."""
        return axis_choices(map(kinds_along, self.layouts))

    @cached_property
    def views(self) -> npt.NDArray[np.bool_]:
        """Whether a device's part in layout j is a part of what it has in layout i, so that it needs no tensor of its
        own. Shape [layouts, layouts].
        """
        alike = (Invariant, Replicate)
        copies = np.array([[isinstance(kind, alike) for kind in layout.kinds] for layout in self.layouts], dtype=bool)
        blocks = np.array(
            [[isinstance(kind, Shard) and kind.by == PARTITION for kind in layout.kinds] for layout in self.layouts],
            dtype=bool,
        )
        same = self.along[:, None, :] == self.along[None, :, :]
        cut = copies[:, None, :] & (copies | blocks)[None, :, :]
        return np.asarray((same | cut).all(axis=2))

    @cached_property
    def summed_back(self) -> npt.NDArray[np.bool_]:
        """Whether the gradient of a conversion from layout i to layout j is summed. Shape [layouts, layouts]."""
        copies = np.array(
            [[isinstance(kind, Replicate) for kind in layout.kinds] for layout in self.layouts], dtype=bool
        )
        return np.asarray((copies[None, :, :] & ~copies[:, None, :]).any(axis=2))

    @cached_property
    def invariant(self) -> int:
        return self._number[invariant(self.prices.mesh)]

    @cached_property
    def storable(self) -> Layouts:
        """Layouts in which parameters are stored on all devices: Invariant or Shard, so that a gradient arrives in its
        parameter's layout.
        """
        return np.array([i for i, layout in enumerate(self.layouts) if storable(layout) and not layout.placement])

    @cached_property
    def kept(self) -> Mapping[Keeping, Layouts]:
        """Storable layouts by `Keeping`. `SLICES` and `GATHERED`: those with the fewest bytes on a device. `HYBRID`:
        those with the fewest among layouts that are whole along all mesh axes but the last. `WHOLE`: whole ones.
        `AS_READ`: all.
        """
        held = self.held[self.storable]
        slices, whole = self.storable[held == held.min()], self.storable[held == 1]
        sliced = dict.fromkeys((Keeping.SLICES, Keeping.GATHERED), slices)
        kinds = [self.layouts[number].kinds for number in self.storable]
        inner = np.array([all(isinstance(kind, Invariant) for kind in some[:-1]) for some in kinds], dtype=bool)
        hybrid = self.storable[inner & (held == held[inner].min())]
        return {Keeping.WHOLE: whole, **sliced, Keeping.HYBRID: hybrid, Keeping.AS_READ: self.storable}

    @cached_property
    def held(self) -> Table:
        """The fraction of a tensor that a device holds, by layout."""
        return np.array([local_fraction(layout, self.prices.mesh) for layout in self.layouts])


ConversionTable = dict[tuple[Located, Located | None, int, int | None, ConversionOverlap, bool], Table]
"""Prices of conversions by layouts and their transposes, bytes of the tensor and of its gradient if any, what overlaps
with them, and whether sums of the gradient are in buckets.
"""


class Spaces:
    """The spaces of all tensors of a model on a mesh. `found` are prices of conversions known from other models."""

    def __init__(self, prices: ConversionModel, found: ConversionTable) -> None:
        self.mesh = prices.mesh
        self.prices = prices
        self.found = found
        self._spaces: dict[tuple[int, ...], Space] = {}
        self._conversions: dict[tuple[tuple[int, ...], int, int | None, ConversionOverlap, bool], Table] = {}

    def of(self, value: Value) -> Space:
        if value.shape not in self._spaces:
            self._spaces[value.shape] = Space(value.shape, self.prices)
        return self._spaces[value.shape]

    def conversions(self, value: Value, overlap: ConversionOverlap = NO_OVERLAP) -> Table:
        """Seconds of converting a value from its produced layout, and its gradient back, for every pair of layouts of
        its space. `overlap` says what overlaps. Without overlap, a layout in between never makes a conversion cheaper.
        `TIE`s are included.
        """
        return self._seconds(value, overlap, in_buckets=value.is_weight)

    def between(self, value: Value) -> Table | None:
        """The same for converting a converted copy; None where the price does not differ. The gradient of a weight's
        copy is summed on its own, not in a bucket.
        """
        return self._seconds(value, NO_OVERLAP, in_buckets=False) if value.is_weight and value.needs_gradient else None

    def _seconds(self, value: Value, overlap: ConversionOverlap, *, in_buckets: bool) -> Table:
        back = value.stored_bytes if value.needs_gradient else None
        kind = value.shape, value.bytes, back, overlap, in_buckets
        if kind not in self._conversions:
            space = self.of(value)
            everywhere = *space.alike(back), *kind[1:]
            if everywhere not in self.found:
                found = space.seconds(value.bytes, back, overlap=overlap, in_buckets=in_buckets)
                self.found[everywhere] = found
            self._conversions[kind] = self.found[everywhere]
        return self._conversions[kind]
