"""Many layouts of a tensor at once, as arrays of integer codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product

import numpy as np
import numpy.typing as npt

from .layout import Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, interned

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Fractions = npt.NDArray[np.float64]

INVARIANT, REPLICATE, PARTIAL, SHARD = range(4)
"""Kinds as numbers; a shard of dimension d is SHARD + d."""

_TRANSPOSED = np.array([INVARIANT, PARTIAL, REPLICATE])


@dataclass(frozen=True)
class LayoutCodes:
    """For each layout and mesh axis: the kind, and the place among axes that cut one dimension, 0 the major one.

    Both arrays have shape [layouts, mesh axes]; `place` is 0 where nothing is cut.
    """

    kind: Numbers
    place: Numbers

    def __len__(self) -> int:
        return len(self.kind)

    def at(self, rows: Numbers | Mask | slice) -> LayoutCodes:
        return LayoutCodes(self.kind[rows], self.place[rows])

    @property
    def transpose(self) -> LayoutCodes:
        """The layouts of the gradients."""
        kind = self.kind.copy()
        kind[kind < SHARD] = _TRANSPOSED[kind[kind < SHARD]]
        return LayoutCodes(kind, self.place)

    @property
    def in_mesh_order(self) -> Mask:
        """Whether every dimension is cut by its mesh axes in their order."""
        return np.asarray((self.place == places_in_order(self.kind)).all(axis=1))

    def keys(self, dims: int) -> Numbers:
        """A number for each layout, unique among the layouts of a tensor with `dims` dimensions."""
        axes = self.kind.shape[1]
        base = (SHARD + dims) * max(axes, 1)
        return np.asarray((self.kind * axes + self.place) @ base ** np.arange(axes, dtype=np.int64))

    def local_fractions(self, mesh: Mesh) -> Fractions:
        """The fraction of a tensor's elements that each device holds."""
        return np.asarray(np.where(self.kind >= SHARD, 1 / np.array(mesh.degrees), 1.0).prod(axis=1))

    def layouts(self, dims: Sequence[int]) -> list[Layout]:
        """The layouts as objects. `dims` are the tensor's dimensions for which the numbers of shards stand."""
        axes = self.kind.shape[1]
        plain: list[list[Kind]] = [[kind] * axes for kind in (Invariant(), Replicate(), Partial())]
        kinds = plain + [[Shard(dim, place) for place in range(axes)] for dim in dims]
        rows = zip(self.kind.tolist(), self.place.tolist(), strict=True)
        return [interned(tuple(kinds[k][p] for k, p in zip(*row, strict=True))) for row in rows]


def places_in_order(kind: Numbers) -> Numbers:
    """The place of every mesh axis where dimensions are cut by the axes in mesh order."""
    place = np.zeros_like(kind)
    for axis in range(1, kind.shape[1]):
        earlier = (kind[:, :axis] == kind[:, axis, None]).sum(axis=1)
        place[:, axis] = np.where(kind[:, axis] >= SHARD, earlier, 0)
    return place


def all_layouts(extents: Sequence[int], mesh: Mesh) -> tuple[LayoutCodes, int]:
    """Every layout that divides a tensor of those extents, and how many are in mesh order: these come first."""
    every, ordered = layouts_of_any_extents(len(extents), len(mesh.axes))
    fits = dividing(every, extents, mesh)
    return every.at(fits), int(np.count_nonzero(fits[:ordered]))


@lru_cache(maxsize=64)
def layouts_of_any_extents(dims: int, axes: int) -> tuple[LayoutCodes, int]:
    """Every layout of a tensor whose dimensions all mesh axes can cut, and how many are in mesh order: the first."""
    kind = np.array(list(product(range(SHARD + dims), repeat=axes)), dtype=np.int64).reshape(
        (SHARD + dims) ** axes, axes
    )
    ordered = LayoutCodes(kind, places_in_order(kind))
    nested = [_nested(kind, order) for order in permutations(range(axes))]
    every = LayoutCodes(np.tile(kind, (len(nested), 1)), np.concatenate(nested))
    every = every.at(~every.in_mesh_order)
    others = every.at(np.unique(every.keys(dims), return_index=True)[1])
    return LayoutCodes(*map(np.concatenate, ((kind, others.kind), (ordered.place, others.place)))), len(kind)


@lru_cache(maxsize=256)
def _objects(dims: tuple[int, ...], axes: int) -> tuple[Layout, ...]:
    """The layouts of `layouts_of_any_extents` in mesh order, as objects. `dims` are the dimensions that can be cut."""
    every, ordered = layouts_of_any_extents(len(dims), axes)
    return tuple(every.at(slice(ordered)).layouts(dims))


def block_counts(layouts: LayoutCodes, dims: int, mesh: Mesh) -> Numbers:
    """Into how many blocks each dimension is cut. Shape [layouts, dimensions]."""
    cuts = layouts.kind[:, :, None] == SHARD + np.arange(dims)
    return np.asarray(np.where(cuts, np.array(mesh.degrees, dtype=np.int64)[:, None], 1).prod(axis=1))


def dividing(layouts: LayoutCodes, extents: Sequence[int], mesh: Mesh) -> Mask:
    """Which of the layouts cut every dimension evenly."""
    counts = block_counts(layouts, len(extents), mesh)
    return np.asarray((np.array(extents, dtype=np.int64) % counts == 0).all(axis=1))


@lru_cache(maxsize=256)
def layouts_in_order(extents: tuple[int, ...], mesh: Mesh) -> tuple[Layout, ...]:
    """Every layout that divides a tensor of these extents and cuts every dimension by mesh axes in their order."""
    dims = tuple(dim for dim, extent in enumerate(extents) if extent > 1)
    every, ordered = layouts_of_any_extents(len(dims), len(mesh.axes))
    fits = dividing(every.at(slice(ordered)), [extents[dim] for dim in dims], mesh)
    objects = _objects(dims, len(mesh.axes))
    return tuple(objects[number] for number in np.flatnonzero(fits))


def _nested(kind: Numbers, order: Sequence[int]) -> Numbers:
    """Places where all dimensions are cut by mesh axes in this order."""
    place = np.zeros_like(kind)
    place[:, order] = places_in_order(kind[:, order])
    return place


def encode(layouts: Iterable[Layout], dims: Sequence[int]) -> LayoutCodes:
    """The inverse of `LayoutCodes.layouts`."""
    plain = {Invariant: INVARIANT, Replicate: REPLICATE, Partial: PARTIAL}
    kind, place = [], []
    for layout in layouts:
        kind.append([SHARD + dims.index(k.dim) if isinstance(k, Shard) else plain[type(k)] for k in layout.kinds])
        place.append([k.place if isinstance(k, Shard) else 0 for k in layout.kinds])
    return LayoutCodes(np.array(kind, dtype=np.int64), np.array(place, dtype=np.int64))
