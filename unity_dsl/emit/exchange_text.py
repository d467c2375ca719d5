"""Text of exchanges and permutations: what parallel.py needs to know of two layouts to find which slices go where.

Each device of the emitted program finds the positions when it starts. The text depends on the mesh axes, not on how
many devices or elements there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ..graph.collective_steps import Step
from ..graph.declared_slices import cut_at, positions_of
from ..graph.layout import PARTITION, Cut, Invariant, Layout, Mesh, Overlap, Partial, Replicate, Window
from ..index.library import Library
from .positions_text import PositionsFunction
from .templates import tuple_text

PositionsOf = Callable[[str], PositionsFunction]
"""Returns the function of a declared cut, and has it written in parallel.py."""


def crossed(source: Layout, target: Layout, shape: tuple[int, ...], mesh: Mesh, library: Library) -> tuple[int, ...]:
    """The mesh axes along which data is sent, in mesh order.

    These are the axes over which partial terms are summed, and the axes that cut a dimension differently than before. A
    value that becomes partial terms stays where it is; along an axis of copies every device uses its own.
    """
    found = set()
    for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True)):
        if isinstance(before, Partial) and not isinstance(after, Partial):
            found.add(axis)
    for dim, extent in enumerate(shape):
        moved = _moved(source, target, dim, extent, mesh, library)
        found |= {axis for axis in moved if not isinstance(target.kinds[axis], Partial)}
    return tuple(sorted(found))


def exchange_arguments(
    step: Step, shape: tuple[int, ...], mesh: Mesh, library: Library, positions: PositionsOf
) -> tuple[str, ...]:
    """The arguments of `Exchange` after the mesh and the group: how dimensions are cut, and the axes along which values
    become partial terms.
    """
    source, target = _ends(step)
    dims = [
        f"{dim}: {_dimension(source, target, dim, extent, mesh, library, positions)}"
        for dim, extent in enumerate(shape)
        if source.nesting(dim) or target.nesting(dim)
    ]
    once = [
        axis
        for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True))
        if isinstance(before, Invariant | Replicate) and isinstance(after, Partial)
    ]
    return f"{{{', '.join(dims)}}}", *([f"once={axis_tuple(once, mesh)}"] if once else [])


@dataclass(frozen=True)
class Permuted:
    """A permutation of the devices that differ along `axes`, as pairs of axes that number the same parts of a tensor.

    A device receives from the one whose coordinates along the first axes of every pair give the same number as its own
    along the second axes. Parts are the slices of a dimension, the terms of a sum, or copies.
    """

    axes: tuple[int, ...]
    pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def arguments(self, mesh: Mesh) -> tuple[str, str]:
        """The arguments of `Permutation` after the mesh and the group."""
        before, after = ([axis_tuple(pair[side], mesh) for pair in self.pairs] for side in (0, 1))
        return f"before={tuple_text(before)}", f"after={tuple_text(after)}"


def permuted(step: Step, shape: tuple[int, ...], mesh: Mesh) -> Permuted:
    """The permutation that a step is. Raises ValueError if a device would not send all it has to a single other one."""
    source, target = _ends(step)
    pairs = [_changed(_cuts(source, dim), _cuts(target, dim), mesh) for dim in range(len(shape))]
    parts = [(_axes(before), _axes(after)) for before, after in pairs]
    terms = {*source.where(Partial)} ^ {*target.where(Partial)}
    axes = tuple(sorted({*terms, *(axis for pair in parts for side in pair for axis in side)}))
    for kinds in ((Partial,), (Invariant, Replicate)):
        ends = [tuple(axis for axis in layout.where(*kinds) if axis in axes) for layout in (source, target)]
        parts.append((ends[0], ends[1]))
    if any(mesh.degree(before) != mesh.degree(after) for before, after in parts):
        raise ValueError(f"no permutation of devices: {source} -> {target}")
    return Permuted(axes, tuple(pair for pair in parts if any(pair)))


def axis_tuple(axes: Iterable[int], mesh: Mesh) -> str:
    """The names of mesh axes, as the text of a tuple."""
    return tuple_text([json.dumps(mesh.axes[axis].name) for axis in axes])


def _ends(step: Step) -> tuple[Layout, Layout]:
    assert step.source is not None and step.target is not None
    return step.source, step.target


# ---------------------------------------------------------------------------------------------- what travels


def _moved(source: Layout, target: Layout, dim: int, extent: int, mesh: Mesh, library: Library) -> tuple[int, ...]:
    """The mesh axes that cut a dimension and along which its elements move."""
    before, after = (_cuts(layout, dim) for layout in (source, target))
    if before == after:
        return ()
    if _overlaps(before) or _overlaps(after):
        return () if _stays(source, target, dim, extent, mesh, library) else source.nesting(dim)
    return _axes(_changed(before, after, mesh)[0])


_Cuts = list[tuple[int, Cut]]
"""Mesh axes that cut a dimension, major first, with their kinds. The place in a kind is 0, as the order gives it."""


def _changed(before: _Cuts, after: _Cuts, mesh: Mesh) -> tuple[_Cuts, _Cuts]:
    """The cuts without shared major ones, and without minor ones that divide the same blocks in the same way."""
    while before and after and before[0] == after[0]:
        before, after = before[1:], after[1:]
    while before and after and before[-1] == after[-1] and _same_blocks(before[:-1], after[:-1], mesh):
        before, after = before[:-1], after[:-1]
    return before, after


def _axes(cuts: _Cuts) -> tuple[int, ...]:
    return tuple(axis for axis, _ in cuts)


def _cuts(layout: Layout, dim: int) -> _Cuts:
    return [(axis, replace(layout.cut(axis), place=0)) for axis in layout.nesting(dim)]


def _overlaps(cuts: _Cuts) -> bool:
    return any(isinstance(cut, Window | Overlap) for _, cut in cuts)


def _same_blocks(before: _Cuts, after: _Cuts, mesh: Mesh) -> bool:
    """Whether both cut into the same number of equal blocks."""
    blocks = all(cut.by == PARTITION for _, cut in (*before, *after))
    return blocks and mesh.degree(_axes(before)) == mesh.degree(_axes(after))


def _stays(source: Layout, target: Layout, dim: int, extent: int, mesh: Mesh, library: Library) -> bool:
    """Whether every device has all that it needs of a dimension with overlapping slices.

    Partial terms stay if each device needs all positions at which it has some. Copies stay if each device has all that
    it needs.
    """
    before, after = source.nesting(dim), target.nesting(dim)
    given, taken = _cuts(source, dim), _cuts(target, dim)
    put_down = any(isinstance(cut, Overlap) for _, cut in taken)
    if any(isinstance(cut, Overlap) for _, cut in given) and not put_down:
        return False
    if put_down and (any(isinstance(cut, Window) for _, cut in given) or not set(before) <= set(after)):
        return False
    axes = sorted({*before, *after})
    for choice in product(*(range(mesh.axes[axis].degree) for axis in axes)):
        place = dict(zip(axes, choice, strict=True))
        here = tuple(place.get(axis, 0) for axis in range(len(mesh.axes)))
        held, wanted = (positions_of(layout, dim, extent, mesh, here, library) for layout in (source, target))
        inner, outer = (held, wanted) if put_down else (wanted, held)
        if not np.isin(inner[inner >= 0], outer).all():
            return False
    return True


# ---------------------------------------------------------------------------------------------- dimensions


def _dimension(
    source: Layout, target: Layout, dim: int, extent: int, mesh: Mesh, library: Library, positions: PositionsOf
) -> str:
    """How a dimension is cut before and after: in blocks, in declared slices, or in overlapping slices."""
    before, after = (_cuts(layout, dim) for layout in (source, target))
    if all(cut.by == PARTITION for _, cut in (*before, *after)):
        ends = (axis_tuple(_axes(cuts), mesh) for cuts in (before, after))
        return f"Blocks({extent}, {', '.join(ends)})"
    ends = (_declared(cuts, extent, mesh, library, positions) for cuts in (before, after))
    if not (_overlaps(before) or _overlaps(after)):
        return f"Slices({extent}, {', '.join(ends)})"
    near = [axis for axis, _ in after if isinstance(source.kinds[axis], Overlap)]
    lowest = [axis for axis, _ in before if isinstance(target.kinds[axis], Partial)]
    flags = [
        *(["terms=True"] if any(isinstance(cut, Overlap) for _, cut in before) else []),
        *([f"lowest={axis_tuple(lowest, mesh)}"] if lowest else []),
        *(["once=True"] if any(isinstance(cut, Overlap) for _, cut in after) else []),
        *([f"near={axis_tuple(near, mesh)}"] if near else []),
    ]
    return f"Windows({', '.join([str(extent), *ends, *flags])})"


def _declared(cuts: _Cuts, extent: int, mesh: Mesh, library: Library, positions: PositionsOf) -> str:
    """The cuts as text, each within the one before. Mesh axes of an overlapping cut are one device axis."""
    parts: list[tuple[tuple[int, ...], Cut]] = [((axis,), cut) for axis, cut in cuts]
    if _overlaps(cuts):
        parts = [(_axes(cuts), cuts[0][1])]
    texts = []
    for axes, cut in parts:
        found = cut_at(library.parallels[cut.by], mesh.degree(axes), extent, cut.attributes)
        if found is None:
            raise ValueError(f"{cut.by} cannot cut {extent} positions over {mesh.degree(axes)} devices")
        function = positions(cut.by)
        sizes = [f"{argument}={found.sizes[name]}" for name, argument in function.sizes]
        index = f"partial({', '.join([function.name, *sizes])})" if sizes else function.name
        texts.append(f"Cut({axis_tuple(axes, mesh)}, {found.length}, {index})")
        extent = found.length
    return tuple_text(texts)
