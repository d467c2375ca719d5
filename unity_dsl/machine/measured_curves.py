"""Measured seconds as functions of sizes: points, and linear interpolation between them in log-log space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from .toml_table import TomlTable

Numbers = npt.NDArray[np.float64]
Amount = Numbers | float


_LEAST = 1e-9
"""The smallest amount: 0 has no logarithm."""


@dataclass(frozen=True)
class Curve:
    """Seconds of an amount of work (bytes, flops), by measured points of increasing amounts.

    Beyond the points the curve is extrapolated with the slope between the two outermost points on that side; a single
    point is a rate. An amount of 0 takes no time: the caller adds the launch, or takes it as a lower bound.
    """

    amounts: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, amount: Amount) -> Numbers:
        """Seconds of one or more amounts, with the same shape."""
        amounts, seconds = self._logarithms
        x = np.log(np.maximum(amount, _LEAST))
        low, high = (1.0, 1.0) if len(amounts) == 1 else np.diff(seconds)[[0, -1]] / np.diff(amounts)[[0, -1]]
        outside = low * np.minimum(x - amounts[0], 0.0) + high * np.maximum(x - amounts[-1], 0.0)
        return np.asarray(np.exp(np.interp(x, amounts, seconds) + outside))

    def faster(self, times: float) -> Curve:
        """The same measurements with all seconds divided by `times`."""
        return Curve(self.amounts, tuple(seconds / times for seconds in self.seconds))

    @cached_property
    def _logarithms(self) -> tuple[Numbers, Numbers]:
        return np.log(self.amounts), np.log(self.seconds)


@dataclass(frozen=True)
class ProductGrid:
    """Seconds of a product of matrices [rows, inner] and [inner, columns], measured on a grid of these sizes.

    `seconds` has shape [rows, columns, inner]. Between points it is linear along each size, in logarithms. Outside of
    the grid it is extrapolated along each size with the slope between the two points next to the border. A batch of
    products takes `launch` plus `seconds` times the size of the batch.
    """

    rows: tuple[float, ...]
    columns: tuple[float, ...]
    inner: tuple[float, ...]
    seconds: Numbers
    launch: float = 0.0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProductGrid):
            return NotImplemented
        mine, theirs = ((g.rows, g.columns, g.inner, g.launch, g.seconds.tolist()) for g in (self, other))
        return mine == theirs

    def faster(self, times: float) -> ProductGrid:
        """The same measurements with all seconds divided by `times`."""
        return replace(self, seconds=self.seconds / times, launch=self.launch / times)

    def at(self, rows: Amount, columns: Amount, inner: Amount, batch: Amount = 1.0) -> Numbers:
        """Seconds of products of these sizes, broadcast to their common shape."""
        points = self._points
        axes = (self.rows, self.columns, self.inner)
        placed = [_place(axis, size) for axis, size in zip(axes, (rows, columns, inner), strict=True)]
        value: Amount = 0.0
        for corner in product((0, 1), repeat=len(axes)):
            cells = zip(placed, corner, axes, strict=True)
            index = tuple(np.minimum(cell + up, len(axis) - 1) for (cell, _, _), up, axis in cells)
            weight: Amount = 1.0
            for (_, part, _), up in zip(placed, corner, strict=True):
                weight = weight * (part if up else 1 - part)
            value = value + weight * points[index]
        for dim, (_, _, outside) in enumerate(placed):
            if np.any(outside):
                value = value + outside * self._slope(dim, placed)
        return np.asarray(self.launch + batch * np.exp(value))

    def _slope(self, dim: int, placed: Sequence[_Placed]) -> Amount:
        """The slope along one size in the cell of `placed`, at the nearest point of the other sizes."""
        axes = (self.rows, self.columns, self.inner)
        if len(axes[dim]) == 1:
            return 1.0
        low, high = [], []
        for other, (cell, part, _) in enumerate(placed):
            near = np.minimum(cell + (part > 0.5), len(axes[other]) - 1)
            low.append(cell if other == dim else near)
            high.append(cell + 1 if other == dim else near)
        logs = np.log(axes[dim])
        cell = placed[dim][0]
        rise = self._points[tuple(high)] - self._points[tuple(low)]
        return np.asarray(rise / (logs[cell + 1] - logs[cell]))

    @cached_property
    def _points(self) -> Numbers:
        return np.asarray(np.log(self.seconds))


_Placed = tuple[npt.NDArray[np.intp], Numbers, Numbers]
"""The cell that contains a size, its fraction along the cell, and its distance from the grid, in logarithms."""


def _place(axis: Sequence[float], size: Amount) -> _Placed:
    logs, x = np.log(axis), np.log(np.maximum(size, _LEAST))
    cell = np.clip(np.searchsorted(logs, x, side="right") - 1, 0, max(len(axis) - 2, 0))
    inside = np.clip(x, logs[0], logs[-1])
    width = logs[np.minimum(cell + 1, len(axis) - 1)] - logs[cell]
    part = np.where(width > 0, (inside - logs[cell]) / np.where(width > 0, width, 1.0), 0.0)
    return cell, np.asarray(part), np.asarray(x - inside)


# ---------------------------------------------------------------------------------------------- reading


def read_curve(table: TomlTable, amounts: str) -> Curve:
    """The curve of a table with `amounts` and `time_us`. Raises E304."""
    x = _increasing(table, amounts)
    y = tuple(value * 1e-6 for value in table.array("time_us", [len(x)]))
    if any(late < early for early, late in pairwise(y)):
        raise table.fault("time_us", f"`time_us`{table.place} must not fall: more work takes no less time")
    return Curve(x, y)


def read_grid(table: TomlTable) -> ProductGrid:
    """The grid of a table with `rows`, `columns`, `inner`, `time_us` and optionally `launch_us`. Raises E304."""
    rows, columns, inner = (_increasing(table, key) for key in ("rows", "columns", "inner"))
    seconds = np.array(table.array("time_us", [len(rows), len(columns), len(inner)]), dtype=np.float64) * 1e-6
    if any((np.diff(seconds, axis=dim) < 0).any() for dim in range(3)):
        raise table.fault("time_us", f"`time_us`{table.place} must not fall along any size")
    launch = table.positive("launch_us") * 1e-6 if "launch_us" in table else 0.0
    return ProductGrid(rows, columns, inner, seconds, launch)


def _increasing(table: TomlTable, key: str) -> tuple[float, ...]:
    found = table.numbers(key)
    if any(late <= early for early, late in pairwise(found)):
        raise table.fault(key, f"`{key}`{table.place} must increase")
    return found
