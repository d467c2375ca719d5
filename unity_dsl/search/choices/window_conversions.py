"""Prices of conversions into and out of halo layouts, for many layouts at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph.layout import Invariant, Layout, Mesh, Window
from ...graph.layout_codes import INVARIANT, REPLICATE, SHARD, LayoutCodes, Mask, Numbers, find
from ...graph.layout_conversion import MoveTable, without_windows
from ...graph.layout_exchange import Received
from ..cost_network.bucket_elimination import Table


@dataclass(frozen=True)
class Crossings:
    """Exchanges between layouts with windows and those where they are slices or copies.

    `group` are the mesh axes of the windows as a bit set, `received` what a device receives there and back, shape
    [2, crossings], and `copied` what it packs and puts in place, as fractions of the whole tensor.
    """

    group: Numbers
    received: Table
    copied: Table


class Windows:
    """Layouts with windows, and by way of which layouts of a table conversions leave and enter them.

    `left` are the numbers in the table of the layouts without their windows; `plain` says of which there is one, and
    `held` which of these have windows. Sources with copies along the same mesh axes, of the same kind, enter windows
    alike: `entry` is a number for what they have, and `entered[entry, w]` the layout before the windows of `held[w]`.
    """

    def __init__(self, layouts: Sequence[Layout], table: MoveTable, mesh: Mesh) -> None:
        self.mesh = mesh
        plain = [without_windows(layout) if layout.overlaps else layout for layout in layouts]
        numbers = np.array([table.number.get(layout, -1) for layout in plain], dtype=np.int64)
        self.plain = (numbers >= 0) & (numbers < table.in_order)
        self.left = np.where(self.plain, numbers, 0)
        self.overlapping = np.array(
            [i for i in np.flatnonzero(self.plain).tolist() if layouts[i].overlaps], dtype=np.int64
        )
        codes = table.paths.layouts
        self._slices = codes.at(self.left[self.overlapping])
        self._kinds, self._windows = _number_windows([layouts[i] for i in self.overlapping.tolist()], self._slices)
        copies = np.where(codes.kind <= REPLICATE, codes.kind, REPLICATE + 1)[self.left]
        patterns, self.entry = np.unique(copies, axis=0, return_inverse=True)
        self.entry = self.entry.reshape(-1)
        self._before = self._enter(patterns)
        self.entered = find(self._before, codes, len(table.dims)).reshape(len(patterns), len(self.overlapping))
        self._dims = table.dims

    @property
    def _windowed(self) -> Mask:
        return self._windows >= 0

    def _enter(self, copies: Numbers) -> LayoutCodes:
        """The layouts before windows, by what a source has along each mesh axis. Shape [patterns * held, axes].

        Where all mesh axes of a window's dimension have copies, these; else slices.
        """
        kind, windowed = self._slices.kind, self._windowed
        together = windowed[:, :, None] & windowed[:, None, :] & (kind[:, :, None] == kind[:, None, :])
        cut = (together & (copies > REPLICATE)[:, None, None, :]).any(axis=3)
        stays = windowed & ~cut
        before = np.where(stays, copies[:, None, :], kind), np.where(stays, 0, self._slices.place)
        return LayoutCodes(*(part.reshape(len(copies) * len(kind), kind.shape[1]) for part in before))

    def entering(self, received: Received, shape: tuple[int, ...]) -> Crossings:
        """By pattern of the source and layout held. Shape [patterns * held]."""
        windows = np.tile(self._windows, (len(self.entered), 1))
        return self._cross(self._before, windows, received, shape, enter=True)

    def leaving(self, received: Received, shape: tuple[int, ...]) -> Crossings:
        """By layout held."""
        return self._cross(self._slices, self._windows, received, shape, enter=False)

    def _cross(
        self, plain: LayoutCodes, windows: Numbers, received: Received, shape: tuple[int, ...], enter: bool
    ) -> Crossings:
        """What is received does not depend on mesh axes without windows but for how much of the tensor they leave."""
        windowed = windows >= 0
        degrees = np.array(self.mesh.degrees)
        rest = np.where((plain.kind >= SHARD) & ~windowed, 1 / degrees, 1.0).prod(axis=1)
        alike = np.hstack([np.where(windowed, plain.kind, -1), np.where(windowed, plain.place, 0), windows])
        each, which = np.unique(alike, axis=0, return_inverse=True)
        fractions = np.array([self._received(row, received, shape, enter) for row in each.tolist()]).reshape(-1, 2)
        group = windowed @ (1 << np.arange(len(degrees), dtype=np.int64))
        behind = rest * np.where(windowed, 1 / degrees, 1.0).prod(axis=1)
        return Crossings(group, fractions[which.reshape(-1)].T * rest, plain.local_fractions(self.mesh) + behind)

    def _received(
        self, row: Sequence[int], received: Received, shape: tuple[int, ...], enter: bool
    ) -> tuple[float, float]:
        axes = len(self.mesh.axes)
        kinds, places, windows = row[:axes], row[axes : 2 * axes], row[2 * axes :]
        codes = LayoutCodes(np.array([kinds]).clip(min=INVARIANT), np.array([places]))
        source = codes.layouts(self._dims)[0]
        target = Layout(tuple(self._kinds[window] if window >= 0 else Invariant() for window in windows))
        if not enter:
            source, target = target, source
        there = received.fraction(source, target, shape)
        return there, received.fraction(target.transpose, source.transpose, shape)


def _number_windows(layouts: Sequence[Layout], slices: LayoutCodes) -> tuple[list[Window], Numbers]:
    """Windows by number, and which a layout has along each mesh axis, -1 for none."""
    found: dict[Window, int] = {}
    numbers = np.full(slices.kind.shape, -1, dtype=np.int64)
    for i, layout in enumerate(layouts):
        for axis, kind in enumerate(layout.kinds):
            if isinstance(kind, Window):
                numbers[i, axis] = found.setdefault(kind, len(found))
    return list(found), numbers
