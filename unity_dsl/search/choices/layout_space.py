"""Layouts that each tensor may have, numbered, with conversion prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...graph.gathers_ahead import sums_back
from ...graph.graph import Value
from ...graph.layout import PARTITION, Invariant, Layout, Partial, Replicate, Shard, invariant
from ...graph.layout_codes import layouts_in_order
from ...graph.layout_conversion import divisors
from ...graph.operand_layouts import LayoutColumn
from ...machine.collective_price import local_fraction
from ...machine.conversion_model import ConversionModel, Located
from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Layouts
from .axis_choices import AxisChoices, axis_choices, kinds_along
from .restriction import Keeping, storable


class Hidden(NamedTuple):
    """What other work hides of a tensor's conversions, as the gathers of a weight: of the way there, if it begins with
    an all-gather, all of that but `exposed`. Where they are begun ahead `if_summed`, that is so of those alone whose
    gradients are summed over devices, and nothing hides the others. Of values in turns it is so of both ways, where
    both take time, and of whatever they are. A product that takes so many seconds on a device, by which a value is
    `read` or `made`, hides as many of a gather of its rows, or of its sum, and of the way back: all but the part
    `exposed`.
    """

    exposed: float = 1.0
    if_summed: bool = False
    in_turns: bool = False
    read: float = 0.0
    made: float = 0.0

    def of(self, source: Layout, target: Layout) -> float:
        """The part that counts of an all-gather from the layout in which a weight is kept."""
        return self.exposed if not self.if_summed or sums_back(source, target) else 1.0

    def of_both(self, there: Table | float, back: Table | float) -> Table:
        """The part that counts of conversions of a value in turns that take so many seconds there and back."""
        return np.where(np.minimum(there, back) > LOCAL, self.exposed, 1.0)

    @property
    def by_products(self) -> bool:
        return self.read > 0 or self.made > 0

    def beside(self, seconds: Table | float, sources: AxisChoices, targets: AxisChoices) -> Table:
        """What counts of conversions of a value, there or back, that take so many seconds, between layouts that are
        this along every mesh axis, as in `Space.along`.
        """
        same, moved = sources == targets, (sources != targets).any(axis=-1)
        gathers = (same | ((sources == _ROWS) & (targets == _COPY))).all(axis=-1) & moved
        sums = (same | ((sources == _TERM) & np.isin(targets, (_ROWS, _COPY, _ONE)))).all(axis=-1) & moved
        hiding = np.where(gathers, self.read, np.where(sums, self.made, 0.0))
        return np.maximum(seconds - hiding, np.where(gathers | sums, self.exposed, 1.0) * seconds)


_ONE, _COPY, _TERM, _ROWS = (
    int(axis_choices([kinds_along(Layout((kind,)))])[0, 0]) for kind in (Invariant(), Replicate(), Partial(), Shard(0))
)
"""What a layout is along a mesh axis, as numbers."""
NOT_HIDDEN = Hidden()
LOCAL = 1e-9
"""Seconds: a way that takes no more sends nothing."""


class Space:
    """The layouts of tensors of one shape: those in mesh order that divide it, and others that operators ask for.

    `layouts[number]` is the layout of a number.
    """

    def __init__(
        self, shape: tuple[int, ...], prices: ConversionModel, layouts: Iterable[Layout] | None = None
    ) -> None:
        """`layouts`, if given, are those that count."""
        self.shape = shape
        self.prices = prices
        if layouts is None:
            layouts = layouts_in_order(divisors(shape, prices.mesh), prices.mesh)
        self.layouts: list[Layout] = list(layouts)
        self._number = {layout: number for number, layout in enumerate(self.layouts)}
        self._columns: dict[int, tuple[LayoutColumn, Layouts]] = {}

    def add(self, layouts: Iterable[Layout]) -> None:
        """Makes sure that the layouts have numbers. Not after prices were asked for."""
        for layout in layouts:
            if layout not in self._number:
                self._number[layout] = len(self.layouts)
                self.layouts.append(layout)

    def of_column(self, column: LayoutColumn) -> Layouts:
        """The number of every configuration's layout, which it is given if it has none; found once for an object."""
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

    def seconds(self, count: int, back: int | None, *, hidden: Hidden = NOT_HIDDEN, in_buckets: bool = False) -> Table:
        """Of conversions of a tensor of `count` bytes there, and of its cotangent of `back` bytes back, if it has one,
        for every pair of layouts. Both may be `hidden` in part; sums on the way back may be `in_buckets`.
        """
        there = self.forward_seconds(count)
        if hidden.in_turns:
            if back is None:
                return there
            returning = self.prices.seconds(self._transposed, back, in_buckets=in_buckets).T
            return hidden.of_both(there, returning) * (there + returning)
        if hidden.by_products:
            along = self.along[:, None, :], self.along[None, :, :]
            there = hidden.beside(there, *along)
            if back is None:
                return there
            return there + hidden.beside(self.prices.seconds(self._transposed, back).T, *along)
        if hidden.exposed != 1:
            begun = self.forward_seconds(count, begun=hidden.exposed)
            there = np.where(self.summed_back, begun, there) if hidden.if_summed else begun
        if back is None:
            return there
        return there + self.prices.seconds(self._transposed, back, in_buckets=in_buckets).T

    def alike(self, back: int | None) -> tuple[Located, Located | None]:
        """What the prices of its conversions, and of those back, depend on beside bytes."""
        return self._located, None if back is None else self._transposed

    def forward_seconds(self, count: int, *, begun: float = 1.0) -> Table:
        """Of the conversions alone, without the way back of a gradient; of first all-gathers the part `begun`."""
        return self.prices.seconds(self._located, count, begun=begun)

    @cached_property
    def _located(self) -> Located:
        return self.prices.located(self.layouts, self.shape)

    @cached_property
    def _transposed(self) -> Located:
        return self.prices.located([layout.transpose for layout in self.layouts], self.shape)

    @cached_property
    def along(self) -> AxisChoices:
        """What tensors in the layouts are along every mesh axis."""
        return axis_choices(map(kinds_along, self.layouts))

    @cached_property
    def views(self) -> npt.NDArray[np.bool_]:
        """Whether a device's part in layout j is a part of what it has in layout i: no tensor of its own. Shape
        [layouts, layouts].
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
        """Whether the cotangent of a conversion from layout i to layout j is summed. Shape [layouts, layouts]."""
        copies = np.array(
            [[isinstance(kind, Replicate) for kind in layout.kinds] for layout in self.layouts], dtype=bool
        )
        return np.asarray((copies[None, :, :] & ~copies[:, None, :]).any(axis=2))

    @cached_property
    def invariant(self) -> int:
        return self._number[invariant(self.prices.mesh)]

    @cached_property
    def storable(self) -> Layouts:
        """Layouts in which parameters are kept on all devices: Invariant or Shard, so that a gradient arrives as its
        parameter is.
        """
        return np.array([i for i, layout in enumerate(self.layouts) if storable(layout) and not layout.placement])

    @cached_property
    def kept(self) -> Mapping[Keeping, Layouts]:
        """Of these, those in which a device holds the least, those in which it does of those that are whole along all
        mesh axes but the last, those in which it holds all, and all.
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
        """By layout the part of a tensor that a device holds."""
        return np.array([local_fraction(layout, self.prices.mesh) for layout in self.layouts])


ConversionTable = dict[tuple[Located, Located | None, int, int | None, Hidden, bool], Table]
"""By the layouts and their transposes, bytes of the tensor and of its cotangent, if it has one, what hides the way
there, and whether sums of its gradient are in buckets.
"""


class Spaces:
    """The spaces of all tensors of a model on a mesh. `found` are prices of conversions known from other models."""

    def __init__(self, prices: ConversionModel, found: ConversionTable) -> None:
        self.mesh = prices.mesh
        self.prices = prices
        self.found = found
        self._spaces: dict[tuple[int, ...], Space] = {}
        self._conversions: dict[tuple[tuple[int, ...], int, int | None, Hidden, bool], Table] = {}

    def of(self, value: Value) -> Space:
        if value.shape not in self._spaces:
            self._spaces[value.shape] = Space(value.shape, self.prices)
        return self._spaces[value.shape]

    def conversions(self, value: Value, hidden: Hidden = NOT_HIDDEN) -> Table:
        """Seconds of conversions of a value as it is produced, which may be `hidden` in part, and back, for every pair
        of layouts of its space; closed under paths but for what is hidden. `TIE`s are included.
        """
        return self._seconds(value, hidden, in_buckets=value.is_weight)

    def between(self, value: Value) -> Table | None:
        """The same of a copy in another layout, where that is another price: the gradient of a copy of a weight is
        summed by itself.
        """
        return self._seconds(value, NOT_HIDDEN, in_buckets=False) if value.is_weight and value.needs_gradient else None

    def _seconds(self, value: Value, hidden: Hidden, *, in_buckets: bool) -> Table:
        back = value.stored_bytes if value.needs_gradient else None
        kind = value.shape, value.bytes, back, hidden, in_buckets
        if kind not in self._conversions:
            space = self.of(value)
            everywhere = *space.alike(back), *kind[1:]
            if everywhere not in self.found:
                found = space.seconds(value.bytes, back, hidden=hidden, in_buckets=in_buckets)
                self.found[everywhere] = found
            self._conversions[kind] = self.found[everywhere]
        return self._conversions[kind]
