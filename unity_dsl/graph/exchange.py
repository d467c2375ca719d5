"""Layouts as index maps at concrete sizes, and the transfers that any conversion between two of them needs.

Per mesh axis a layout is a declared parallel op: an encoder whose elements are copies of the tensor's (replicate,
partition, a user's own), or the decoder that sums (reduce). At concrete sizes an encoder gives, per device and tensor
dimension, the global index of every local position. Composing one layout's inverse with another's map gives, for every
pair of devices, which positions travel: that is the generic lowering of any conversion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from ..index.library import Library
from ..syntax.ast import Apply, DeviceName, Expr, Name, Number, ParallelDecl, Read, Size
from .layout import Invariant, Layout, Mesh, Partial, Replicate, Shard

Indices = np.ndarray
"""Global positions along one dimension, in local order; -1 stands for a filled position outside the tensor."""


# ------------------------------------------------------------------------------------------- declared cuts


def is_cut(declaration: ParallelDecl) -> bool:
    """Whether a parallel op cuts one dimension of its input into slices along its device axis."""
    if len(declaration.inputs) != 1 or len(declaration.outputs) != 1 or len(declaration.statements) != 1:
        return False
    outer, inner = declaration.outputs[0].dims, declaration.inputs[0].dims
    if not outer or not outer[0].device or any(dim.device for dim in (*outer[1:], *inner)):
        return False
    value = declaration.statements[0].value
    return isinstance(value, Read) and len(outer) == len(inner) + 1 and _cut_position(declaration) is not None


@dataclass(frozen=True)
class Cut:
    """A cut at concrete sizes: the global index as a term in the names of the device's and the local index."""

    index: Expr
    device: str
    local: str
    held: int
    sizes: Mapping[str, int]
    filled: bool


def cut_at(declaration: ParallelDecl, degree: int, extent: int) -> Cut | None:
    """A declared cut of one dimension, or None where the sizes do not fit. `held` positions fall to each device."""
    position = _cut_position(declaration)
    assert position is not None
    statement = declaration.statements[0]
    assert isinstance(statement.value, Read)
    sizes: dict[str, int] = {declaration.inputs[0].dims[position].name: extent, declaration.degrees[0]: degree}
    sizes |= {name.name: int(name.default) for name in declaration.attributes if name.default is not None}
    held = declaration.outputs[0].dims[position + 1].name
    if not _solve(declaration.conditions, sizes) or held not in sizes or sizes[held] < 1:
        return None
    local, device = statement.index[position + 1], statement.index[0]
    index = statement.value.index[position]
    return Cut(index, device.name, local.name, sizes[held], sizes, statement.value.fill is not None)


def cut_indices(declaration: ParallelDecl, degree: int, extent: int) -> Indices | None:
    """Global index of every (device, local position) of one dimension, or None where the sizes do not fit.

    Shape of the result: [degree, local extent].
    """
    cut = cut_at(declaration, degree, extent)
    if cut is None:
        return None
    grid = {cut.device: np.arange(degree)[:, None], cut.local: np.arange(cut.held)[None, :]}
    found = np.broadcast_to(_value(cut.index, grid, cut.sizes), (degree, cut.held))
    inside = (found >= 0) & (found < extent)
    if not inside.all() and not cut.filled:
        return None
    return np.where(inside, found, -1)


def _cut_position(declaration: ParallelDecl) -> int | None:
    """The dimension of the input that is cut: the one declared between the rest groups."""
    named = [i for i, dim in enumerate(declaration.inputs[0].dims) if not dim.rest]
    return named[0] if len(named) == 1 else None


def _solve(conditions: tuple[Expr, ...], sizes: dict[str, int]) -> bool:
    """Extends `sizes` by the unknowns of `==` conditions, each linear in one; false where they contradict."""
    pending = [c for c in conditions if isinstance(c, Apply) and c.function == "==" and not _mentions_rank(c)]
    while pending:
        remaining = []
        for condition in pending:
            unknown = {name for side in condition.arguments for name in _names(side)} - set(sizes)
            if len(unknown) > 1:
                remaining.append(condition)
                continue

            def gap(value: int, name: str | None = next(iter(unknown), None), both: Apply = condition) -> int:
                bound = sizes if name is None else sizes | {name: value}
                left, right = (int(_value(side, {}, bound)) for side in both.arguments)
                return left - right

            if not unknown:
                if gap(0) != 0:
                    return False
                continue
            slope = gap(1) - gap(0)
            if slope == 0 or gap(0) % slope:
                return False
            sizes[unknown.pop()] = -gap(0) // slope
        if len(remaining) == len(pending):
            return False
        pending = remaining
    return True


def _mentions_rank(condition: Apply) -> bool:
    return any(isinstance(side, Apply) and side.function == "rank" for side in condition.arguments)


def _names(expr: Expr) -> set[str]:
    match expr:
        case Name(name=name) | Size(name=name):
            return {name}
        case Apply(arguments=arguments):
            return {name for argument in arguments for name in _names(argument)}
    return set()


def _value(expr: Expr, grid: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    match expr:
        case Number(value=value):
            return np.asarray(int(value))
        case DeviceName(name=name):
            return grid[name]
        case Name(name=name):
            return grid[name] if name in grid else np.asarray(sizes[name])
        case Size(name=name):
            return np.asarray(sizes[name])
        case Apply(function=function, arguments=arguments):
            values = [_value(argument, grid, sizes) for argument in arguments]
            return np.asarray(_ARITHMETIC[function](*values))
    raise ValueError(f"`{expr}` is not index arithmetic")


_ARITHMETIC = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "neg": np.negative,
}


def bijective(declaration: ParallelDecl, degree: int, extent: int) -> bool:
    """Whether the slices are disjoint and cover the dimension: then any mapped or summed axis may be cut so."""
    found = cut_indices(declaration, degree, extent)
    return found is not None and np.array_equal(np.sort(found, axis=None), np.arange(extent))


@lru_cache(maxsize=4096)
def _cut_table(by: str, degree: int, extent: int, declaration: ParallelDecl) -> Indices:
    found = cut_indices(declaration, degree, extent)
    if found is None:
        raise ValueError(f"{by} cannot cut {extent} positions over {degree} devices")
    return found


def held_indices(
    layout: Layout, dim: int, extent: int, mesh: Mesh, coordinates: tuple[int, ...], library: Library
) -> Indices:
    """Global index of every local position along a dimension, on the device at `coordinates`."""
    held = np.arange(extent)
    for axis in layout.nesting(dim):
        kind = layout.kinds[axis]
        assert isinstance(kind, Shard)
        declaration = library.parallels[kind.by]
        chosen = _cut_table(kind.by, mesh.axes[axis].degree, len(held), declaration)[coordinates[axis]]
        held = np.where(chosen >= 0, held[chosen], -1)
    return held


# ---------------------------------------------------------------------------------------------- transfers


@dataclass(frozen=True)
class Transfer:
    """What one device gives another: per dimension, positions in the giver's tensor and in the taker's.

    What a device takes from several givers is summed; positions that nobody gives are zero.
    """

    giver: int
    taker: int
    taken_from: tuple[tuple[int, ...], ...]
    put_at: tuple[tuple[int, ...], ...]

    @property
    def elements(self) -> int:
        return prod(len(positions) for positions in self.put_at)


def transfers(source: Layout, target: Layout, shape: tuple[int, ...], mesh: Mesh, library: Library) -> list[Transfer]:
    """The composed index map of a conversion, for every pair of devices, ordered by taker, then giver.

    Elements of an encoder are copies, so the nearest holder gives: the taker itself where it holds the element, else
    the holder that differs from it in the fewest coordinates of the sharded axes. Along a Partial axis that changes,
    all devices give. A value that becomes Partial along an axis stays with its holder (Shard) or with the first device.
    """
    found = []
    for taker in range(mesh.size):
        here = mesh.coordinates(taker)
        if not _receives(source, target, here):
            continue
        for giver in range(mesh.size):
            there = mesh.coordinates(giver)
            if _may_give(source, target, here, there):
                pairs = [
                    _matches(source, target, dim, extent, mesh, here, there, library)
                    for dim, extent in enumerate(shape)
                ]
                if all(len(taken) for taken, _ in pairs):
                    found.append(
                        Transfer(giver, taker, tuple(taken for taken, _ in pairs), tuple(put for _, put in pairs))
                    )
    return found


def _receives(source: Layout, target: Layout, here: tuple[int, ...]) -> bool:
    """Of a value that becomes Partial from copies, the first device of the axis keeps it."""
    return all(
        here[axis] == 0
        for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True))
        if isinstance(after, Partial) and isinstance(before, Invariant | Replicate)
    )


def _may_give(source: Layout, target: Layout, here: tuple[int, ...], there: tuple[int, ...]) -> bool:
    """Copies are taken from the taker's own coordinate; a Partial axis that changes gives from every coordinate."""
    for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True)):
        if isinstance(before, Shard):
            if isinstance(after, Partial) and here[axis] != there[axis]:
                return False
        elif isinstance(before, Partial) and not isinstance(after, Partial):
            continue
        elif here[axis] != there[axis]:
            return False
    return True


def _matches(
    source: Layout,
    target: Layout,
    dim: int,
    extent: int,
    mesh: Mesh,
    here: tuple[int, ...],
    there: tuple[int, ...],
    library: Library,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions along one dimension that the device at `there` gives the one at `here`."""
    wanted = held_indices(target, dim, extent, mesh, here, library)
    axes = source.nesting(dim)
    fixed = [axis for axis in axes if isinstance(target.kinds[axis], Partial)]
    owner = np.full(extent, -1)
    slot = np.full(extent, -1)
    choices = list(product(*(range(mesh.axes[axis].degree) for axis in axes)))
    choices.sort(key=lambda choice: sum(c != here[axis] for c, axis in zip(choice, axes, strict=True)))
    for number, choice in enumerate(choices):
        if any(here[axis] != c for c, axis in zip(choice, axes, strict=True) if axis in fixed):
            continue
        coordinates = list(here)
        for c, axis in zip(choice, axes, strict=True):
            coordinates[axis] = c
        held = held_indices(source, dim, extent, mesh, tuple(coordinates), library)
        local = np.flatnonzero((held >= 0) & (owner[np.maximum(held, 0)] < 0))
        # A halo may repeat nothing within one device, so assignment order does not matter.
        owner[held[local]] = number
        slot[held[local]] = local
    mine = choices.index(tuple(there[axis] for axis in axes))
    put = np.flatnonzero((wanted >= 0) & (owner[np.maximum(wanted, 0)] == mine))
    return tuple(slot[wanted[put]].tolist()), tuple(put.tolist())


def received_fraction(source: Layout, target: Layout, mesh: Mesh) -> float:
    """The most any device receives from others in a conversion, as a fraction of the whole tensor.

    For shards by partition, whose blocks are intervals and for which this does not depend on the extents. A user's own
    cut is taken to move as much as a partition would.
    """
    order = list(dict.fromkeys(kind.dim for kind in (*source.kinds, *target.kinds) if isinstance(kind, Shard)))
    return _received_fraction(*(_renumbered(layout, order) for layout in (source, target)), mesh)


def _renumbered(layout: Layout, order: list[int]) -> Layout:
    """Dimensions numbered as they appear: which they are does not matter to how much moves."""
    return Layout(tuple(Shard(order.index(k.dim), k.place, k.by) if isinstance(k, Shard) else k for k in layout.kinds))


@lru_cache(maxsize=65536)
def _received_fraction(source: Layout, target: Layout, mesh: Mesh) -> float:
    dims = {kind.dim for kind in (*source.kinds, *target.kinds) if isinstance(kind, Shard)}
    terms = mesh.degree(
        axis
        for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True))
        if isinstance(before, Partial) and not isinstance(after, Partial)
    )
    most = 0.0
    for taker in range(mesh.size):
        here = mesh.coordinates(taker)
        if _receives(source, target, here):
            wanted = own = 1.0
            for dim in dims:
                low, high = _block(target, dim, mesh, here)
                mine = _block(source, dim, mesh, here)
                wanted *= high - low
                own *= max(0.0, min(high, mine[1]) - max(low, mine[0]))
            most = max(most, wanted * terms - own)
    return most


def _block(layout: Layout, dim: int, mesh: Mesh, coordinates: tuple[int, ...]) -> tuple[float, float]:
    """The interval of a dimension, scaled to [0, 1), that a device holds."""
    start, length = 0.0, 1.0
    for axis in layout.nesting(dim):
        length /= mesh.axes[axis].degree
        start += coordinates[axis] * length
    return start, start + length
