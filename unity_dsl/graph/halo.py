"""Halos: the parts of neighbouring slices that operands need where an axis is divided, their width and declared op.

The operator's axis is partitioned. A dimension that consists of this axis alone is then partitioned too. Two others are
not:

- a dimension that is read around the axis (`index.axes.axis_windows`) needs a part of the neighbouring slices;
- a dimension that merges the axis with a major one, `(h k)` divided along k, is needed in pieces, one per position
  of h.

An op is known by its index map alone. Its attributes are the smallest whole numbers with which the map gives every
device what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from math import prod

import numpy as np

from ..index.axes.axis_windows import Reach, Windowed, windowed
from ..index.equations.instance import Instance, Operand
from ..index.library import Library
from ..syntax.ast import ParallelDecl
from .declared_slices import bijective, cut_at, free_attributes, linear_span, why_no_cut
from .layout import PARTITION, Attributes, Mesh, Window
from .layout_codes import Numbers

MOST = 128
"""Attributes are tried up to this sum of their values."""


@dataclass(frozen=True)
class HaloWindow:
    """A dimension of an operand that devices hold as windows of `length` positions.

    Local position 0 stands for the global position `start` + (size of a slice) * (number of the device).
    """

    operand: str
    dim: int
    axis: str
    by: str
    attributes: Attributes
    start: int
    length: int

    def is_slice(self, extent: int, degree: int) -> bool:
        """Whether each of `degree` devices holds its slice of the dimension and nothing else."""
        return self.start == 0 and self.length * degree == extent


@dataclass(frozen=True)
class Halos:
    """How operands are held that slices of the divided axes do not cover: the windows, and for merged dimensions, by
    operand, dimension and mesh axis, the op with its attributes.
    """

    windows: tuple[HaloWindow, ...] = ()
    merged: Mapping[tuple[str, int, int], tuple[str, Attributes]] = field(default_factory=dict)

    def sizes(self, instance: Instance) -> dict[str, int]:
        """The local lengths of axes that only name a dimension read around another axis."""
        found: dict[str, int] = {}
        for window in self.windows:
            (own,) = instance.operand(window.operand).dims[window.dim]
            if own != window.axis:
                found[own] = max(window.length, found.get(own, 0))
        return found


class HaloFinder:
    """Finds the ops that can hold the dimensions of one operator where its axes are divided."""

    def __init__(self, instance: Instance, mesh: Mesh, library: Library) -> None:
        self.instance = instance
        self.mesh = mesh
        self.library = library
        self._cut_by: dict[str, str] = {}

    @cached_property
    def windowed(self) -> Mapping[str, Windowed | str]:
        return windowed(self.instance, self.library)

    def cut_by(self, by: str) -> str:
        """The op that cuts the operator's axis itself if a role names `by`: `partition` for a halo op, else `by`."""
        if by not in self._cut_by:
            self._cut_by[by] = PARTITION if is_halo_op(self.library.parallels[by]) else by
        return self._cut_by[by]

    def missing_halo(self, axis: str, by: str, degree: int) -> str | None:
        """Why an op cannot hold what is read around an axis divided over `degree` devices; None if it can."""
        window, size = self.windowed[axis], self.instance.sizes[axis]
        if isinstance(window, str):
            return f"axis `{axis}` of {self.instance.name} cannot be divided: {window}"
        if size % degree:
            return f"{degree} devices do not divide axis `{axis}` of {size}"
        for reach in window.reaches:
            if self._place(by, degree, size, reach) is None:
                return (
                    f"`{by}` does not give {degree} devices all of `{reach.operand}` that is read around axis `{axis}` "
                    f"of {self.instance.name}"
                )
        return None

    def window(self, axis: str, by: str, operand: Operand) -> Window | None:
        """The Window of an operand that is read around the divided axis, with its place left at 0; None for others."""
        declaration = self.library.parallels[by]
        window = self.windowed.get(axis) if is_halo_op(declaration) else None
        reach = window.reach(operand.name) if isinstance(window, Windowed) else None
        if reach is None:
            return None
        attributes = window_attributes(declaration, self.instance.sizes[axis], reach)
        return None if attributes is None else Window(reach.dim, 0, by, attributes)

    def hold(
        self,
        used: Mapping[str, Sequence[str]],
        divided: Mapping[str, tuple[int, ...]],
        local: Mapping[str, int],
    ) -> Halos | str:
        """The halos that operands need, or why ops cannot hold them. `used` are the ops named for each divided axis."""
        windows: list[HaloWindow] = []
        merged: dict[tuple[str, int, int], tuple[str, Attributes]] = {}
        for name, ops in used.items():
            if all(self.cut_by(by) == by for by in ops):
                continue
            if len(ops) > 1:
                return f"axis `{name}` of {self.instance.name} is divided by {' and by '.join(ops)}"
            (by,) = ops
            if name in self.windowed:
                if (reason := self.missing_halo(name, by, self.mesh.degree(divided[name]))) is not None:
                    return reason
                windows += self._windows(name, by, self.mesh.degree(divided[name]))
                continue
            found = self._merged(name, by, divided[name], local)
            if isinstance(found, str):
                return found
            merged |= found
        places = [(window.operand, window.dim) for window in windows]
        if len(set(places)) < len(places):
            return f"a dimension of {self.instance.name} is read around two divided axes"
        return Halos(tuple(windows), merged)

    def _place(self, by: str, degree: int, size: int, reach: Reach) -> tuple[Attributes, tuple[int, int]] | None:
        declaration = self.library.parallels[by]
        attributes = window_attributes(declaration, size, reach)
        place = None if attributes is None else halo_window(declaration, degree, size, reach, attributes)
        return None if attributes is None or place is None else (attributes, place)

    def _windows(self, name: str, by: str, degree: int) -> Iterator[HaloWindow]:
        """The windows around an axis. All its mesh axes are one device axis of the op."""
        window = self.windowed[name]
        assert isinstance(window, Windowed)
        for reach in window.reaches:
            found = self._place(by, degree, self.instance.sizes[name], reach)
            assert found is not None
            yield HaloWindow(reach.operand, reach.dim, name, by, found[0], *found[1])

    def _merged(
        self, name: str, by: str, axes: tuple[int, ...], local: Mapping[str, int]
    ) -> dict[tuple[str, int, int], tuple[str, Attributes]] | str:
        """For each mesh axis, how dimensions are held that merge the axis with a major one of more than one local
        position; or why they cannot be.
        """
        found: dict[tuple[str, int, int], tuple[str, Attributes]] = {}
        for operand in (*self.instance.inputs, *self.instance.outputs):
            for number, dim in enumerate(operand.dims):
                if name not in dim:
                    continue
                place = dim.index(name)
                major = prod(local[axis] for axis in dim[:place])
                minor = prod(self.instance.sizes[axis] for axis in dim[place + 1 :])
                size = self.instance.sizes[name]
                for axis in axes if major > 1 else ():
                    degree = self.mesh.axes[axis].degree
                    attributes = merged_attributes(self.library.parallels[by], degree, major, size, minor)
                    if attributes is None:
                        return f"`{by}` does not hold the slices of axis `{name}` in `{operand.name}`"
                    found[operand.name, number, axis] = by, attributes
                    size //= degree
        return found or f"axis `{name}` of {self.instance.name} needs nothing that `{by}` holds"


@lru_cache(maxsize=256)
def is_halo_op(declaration: ParallelDecl) -> bool:
    """Whether an op holds dimensions and cannot cut an operator's axis: it has free attributes, or its slices never
    partition a dimension, as tested on 1 to 8 devices with 1 to 16 positions each.
    """
    if free_attributes(declaration):
        return True
    return not any(bijective(declaration, degree, degree * size) for degree in range(1, 9) for size in range(1, 17))


def why_not_dealt(declaration: ParallelDecl, degree: int, extent: int) -> str | None:
    """Why an op does not put each of `extent` positions on exactly one of `degree` devices; None if it does."""
    if (reason := why_no_cut(declaration)) is not None:
        return reason
    if free := free_attributes(declaration):
        given = ", ".join(f"`{name}`" for name in free)
        return (
            f"`{declaration.name}` is to be given {given}, and holds what operators read around or merge with an axis"
        )
    if not bijective(declaration, degree, extent):
        return f"`{declaration.name}` does not put each of {extent} positions on exactly one of {degree} devices"
    return None


# ---------------------------------------------------------------------------------------------- windows


@lru_cache(maxsize=4096)
def window_attributes(declaration: ParallelDecl, size: int, reach: Reach) -> Attributes | None:
    """The smallest attributes with which one device, having all `size` positions of the axis, holds all it reads.

    How far an op reaches beyond a slice does not depend on the slice, so they suffice for any number of devices.
    """
    most = min(MOST, max(0, -reach.low) + max(0, reach.high - reach.step + 1))
    span = linear_span(declaration, reach.step * size)
    for values in _choices(declaration, most):
        if span is not None:
            values = values[_covers(*span.at(values), 1, size, reach)]
        for found in _named(declaration, values):
            if halo_window(declaration, 1, size, reach, found):
                return found
    return None


def _covers(
    start: Numbers | int, end: Numbers | int, degree: int, size: int, reach: Reach
) -> np.ndarray | np.bool_ | bool:
    """Whether the first of `degree` devices holds all that it reads."""
    return (start <= reach.low) & (end > reach.step * (size // degree - 1) + reach.high)


@lru_cache(maxsize=16384)
def halo_window(
    declaration: ParallelDecl, degree: int, size: int, reach: Reach, attributes: Attributes
) -> tuple[int, int] | None:
    """(start, length) of windows, as in HaloWindow, for an axis of `size` positions over `degree` devices.

    None if a device does not hold all that it reads, or if windows are not one piece that moves with the device's
    number.
    """
    extent = reach.step * size
    cut = cut_at(declaration, degree, extent, attributes)
    if cut is None or size % degree:
        return None
    positions = cut.positions(degree)
    if positions is None:
        return None
    start = int(positions[0, 0])
    expected = start + extent // degree * np.arange(degree)[:, None] + np.arange(cut.length)[None, :]
    if not np.array_equal(positions, expected):
        return None
    if not _covers(start, start + cut.length, degree, size, reach):
        return None
    outside = start < 0 or expected[-1, -1] >= extent
    return None if outside and not cut.filled else (start, cut.length)


# ---------------------------------------------------------------------------------------------- merged dimensions


@lru_cache(maxsize=4096)
def merged_attributes(declaration: ParallelDecl, degree: int, major: int, size: int, minor: int) -> Attributes | None:
    """The smallest attributes with which device p holds its block of a dimension (major size minor): the p-th block of
    `size` at every major position, in order. None if there are none.
    """
    if size % degree:
        return None
    whole = np.arange(major * size * minor).reshape(major, degree, size // degree * minor)
    wanted = whole.transpose(1, 0, 2).reshape(degree, -1)
    choices = _choices(declaration, size // degree * minor)
    for attributes in chain.from_iterable(_named(declaration, values) for values in choices):
        cut = cut_at(declaration, degree, whole.size, attributes)
        positions = None if cut is None else cut.positions(degree)
        if positions is not None and np.array_equal(positions, wanted):
            return attributes
    return None


@lru_cache(maxsize=256)
def divides_merged(declaration: ParallelDecl, degree: int) -> bool:
    """Whether an op can hold the slices of an axis that is merged with a major one, as tested on small dimensions."""
    small = ((2, 1), (3, 2))
    return any(merged_attributes(declaration, degree, major, 2 * degree, minor) is not None for major, minor in small)


def _choices(declaration: ParallelDecl, most: int) -> Iterator[Numbers]:
    """Values of the free attributes, as rows: one array per sum of the values, from sum 0 up to `most`."""
    count = len(free_attributes(declaration))
    for total in range(most + 1 if count else 1):
        yield _parts(total, count)


def _parts(total: int, count: int) -> Numbers:
    """Every way to write `total` as a sum of `count` whole numbers, in order. Shape [ways, count]."""
    if count == 0:
        return np.zeros((1 if total == 0 else 0, 0), dtype=np.int64)
    first = np.indices((total + 1,) * (count - 1)).reshape(count - 1, (total + 1) ** (count - 1))
    last = total - first.sum(axis=0)
    return np.asarray(np.vstack((first, last)).T[last >= 0])


def _named(declaration: ParallelDecl, values: Numbers) -> Iterator[Attributes]:
    names = free_attributes(declaration)
    return (tuple(zip(names, row, strict=True)) for row in values.tolist())
