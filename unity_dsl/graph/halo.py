"""Halos: which parts of neighbouring slices an operand needs where an axis is divided, how wide, by which declared op.

The operator's axis is partitioned. A dimension that it is all of is then partitioned too, but not every dimension is:

- one that is read around the axis (`index.axes.axis_windows`) is needed with a part of the neighbouring slices;
- one that merges the axis with a major one, `(h k)` divided along k, is needed in pieces, one per position of h.

Nothing is known of an op but its index map: its attributes are the smallest whole numbers for which the map gives every
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
"""Attributes are tried up to this total."""


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
        """Whether every one of so many devices holds its slice of the dimension and nothing else."""
        return self.start == 0 and self.length * degree == extent


@dataclass(frozen=True)
class Halos:
    """What an operator's operands are held by beside its divided axes: windows, and for merged dimensions, by operand,
    dimension and mesh axis, the op with its attributes.
    """

    windows: tuple[HaloWindow, ...] = ()
    merged: Mapping[tuple[str, int, int], tuple[str, Attributes]] = field(default_factory=dict)

    def sizes(self, instance: Instance) -> dict[str, int]:
        """How much a device has of axes that are read around another, and have no other use."""
        found: dict[str, int] = {}
        for window in self.windows:
            (own,) = instance.operand(window.operand).dims[window.dim]
            if own != window.axis:
                found[own] = max(window.length, found.get(own, 0))
        return found


class HaloFinder:
    """Finds for one operator which ops can hold its dimensions where its axes are divided."""

    def __init__(self, instance: Instance, mesh: Mesh, library: Library) -> None:
        self.instance = instance
        self.mesh = mesh
        self.library = library
        self._cut_by: dict[str, str] = {}

    @cached_property
    def windowed(self) -> Mapping[str, Windowed | str]:
        return windowed(self.instance, self.library)

    def cut_by(self, by: str) -> str:
        """The op that cuts the operator's axis itself, where `by` is named for it."""
        if by not in self._cut_by:
            self._cut_by[by] = PARTITION if is_halo_op(self.library.parallels[by]) else by
        return self._cut_by[by]

    def missing_halo(self, axis: str, by: str, degree: int) -> str | None:
        """Why an op cannot hold what is read around an axis divided by so many; None if it can."""
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
        """How an operand is held that is read around the divided axis; its place is left at 0."""
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
        """What has to be held, or why it cannot be. `used` are the ops named for every divided axis."""
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
        """What is held around an axis: all its mesh axes are one device axis of the op."""
        window = self.windowed[name]
        assert isinstance(window, Windowed)
        for reach in window.reaches:
            found = self._place(by, degree, self.instance.sizes[name], reach)
            assert found is not None
            yield HaloWindow(reach.operand, reach.dim, name, by, found[0], *found[1])

    def _merged(
        self, name: str, by: str, axes: tuple[int, ...], local: Mapping[str, int]
    ) -> dict[tuple[str, int, int], tuple[str, Attributes]] | str:
        """What is held of dimensions in which an axis has a major one left, mesh axis after mesh axis."""
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
    """Whether an op cuts no operator's axis, so that it is for dimensions: as told by few devices and positions, its
    slices never make up just everything.
    """
    if free_attributes(declaration):
        return True
    return not any(bijective(declaration, degree, degree * size) for degree in range(1, 9) for size in range(1, 17))


def why_not_dealt(declaration: ParallelDecl, degree: int, extent: int) -> str | None:
    """Why the slices of an op do not put every one of so many positions on one device, in words; None if they do."""
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

    How far an op reaches beyond a slice does not depend on the slice, so they do for any number of devices.
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
    """Whether all that the first of so many devices reads lies within what it holds."""
    return (start <= reach.low) & (end > reach.step * (size // degree - 1) + reach.high)


@lru_cache(maxsize=16384)
def halo_window(
    declaration: ParallelDecl, degree: int, size: int, reach: Reach, attributes: Attributes
) -> tuple[int, int] | None:
    """(start, held) of windows, for an axis of `size` positions over `degree` devices: as in HaloWindow.

    None where a device does not hold all that it reads, or does not hold it in one piece that moves with its number.
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
    """The smallest attributes with which device p holds, of a dimension (major size minor), the p-th block of `size`
    positions at every major one, in order; None where there are none.
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
    """Whether an op can hold the slices of an axis that is merged with a major one, as told by small dimensions."""
    small = ((2, 1), (3, 2))
    return any(merged_attributes(declaration, degree, major, 2 * degree, minor) is not None for major, minor in small)


def _choices(declaration: ParallelDecl, most: int) -> Iterator[Numbers]:
    """Values of the free attributes, in rows, those of one total at a time, by increasing total."""
    count = len(free_attributes(declaration))
    for total in range(most + 1 if count else 1):
        yield _parts(total, count)


def _parts(total: int, count: int) -> Numbers:
    """Every way to write a total as that many whole numbers, in order. Shape [ways, count]."""
    if count == 0:
        return np.zeros((1 if total == 0 else 0, 0), dtype=np.int64)
    first = np.indices((total + 1,) * (count - 1)).reshape(count - 1, (total + 1) ** (count - 1))
    last = total - first.sum(axis=0)
    return np.asarray(np.vstack((first, last)).T[last >= 0])


def _named(declaration: ParallelDecl, values: Numbers) -> Iterator[Attributes]:
    names = free_attributes(declaration)
    return (tuple(zip(names, row, strict=True)) for row in values.tolist())
