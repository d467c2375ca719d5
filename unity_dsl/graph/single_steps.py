"""Conversions by one step: which collective, if any, turns each layout of a tensor into each other one, as arrays.

A step composes, over the whole group of mesh axes that it changes, the declared parallel ops that leave one kind and
enter the other. A change that no named collective makes is an exchange: the composed index map of both layouts, by
which every device receives what it lacks. Invariant and Replicate are the same here, as both are copies. They differ in
the gradient, which has a conversion of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from .collective_steps import Step, StepKind
from .layout import Layout, Mesh
from .layout_codes import (
    INVARIANT,
    PARTIAL,
    REPLICATE,
    SHARD,
    Fractions,
    LayoutCodes,
    Mask,
    Numbers,
    block_counts,
    dividing,
    encode,
    layouts_of_any_extents,
)

STEP_KINDS = tuple(StepKind)
"""Kinds of steps by their numbers."""
NOTHING, UNKNOWN = -1, -2
"""In place of a kind: both layouts are the same, or no single step converts one into the other."""

_NUMBER = {kind: number for number, kind in enumerate(STEP_KINDS)}
_BY_CLASS = np.full((3, 3), UNKNOWN)
"""The step if all mesh axes that change have one class before and one after: copies, terms, shards of one dimension."""
_BY_CLASS[0] = UNKNOWN, _NUMBER[StepKind.MASK], _NUMBER[StepKind.SLICE]
_BY_CLASS[1] = _NUMBER[StepKind.ALL_REDUCE], UNKNOWN, _NUMBER[StepKind.REDUCE_SCATTER]
_BY_CLASS[2] = _NUMBER[StepKind.ALL_GATHER], _NUMBER[StepKind.PAD], _NUMBER[StepKind.ALL_TO_ALL]


@dataclass(frozen=True)
class SingleSteps:
    """The single steps between all layouts of a tensor that partition ops make, in any nesting, without Replicate.

    `kind[i, j]` is the number of the step from layout i to layout j, or NOTHING or UNKNOWN. `group` has the mesh axes
    that change as a bit set, `received` the most that a device takes from others in a permutation or an exchange, as a
    fraction of the whole tensor. `local[i]` is the fraction of the elements that each device holds, `rows[i]` the
    layout's number in `step_layouts`.
    """

    layouts: LayoutCodes
    rows: Numbers
    kind: Numbers
    group: Numbers
    received: Fractions
    local: Fractions

    def step(self, source: int, target: int, dims: tuple[int, ...]) -> Step | None:
        """The step between two layouts, or None; `dims` are the tensor's dimensions for which shard numbers stand."""
        number = int(self.kind[source, target])
        if number < 0:
            return None
        kind, group = STEP_KINDS[number], int(self.group[source, target])
        axes = tuple(axis for axis in range(self.layouts.kind.shape[1]) if group >> axis & 1)
        if kind in (StepKind.MASK, StepKind.ALL_REDUCE):
            return Step(kind, axes)
        if kind in (StepKind.PERMUTE, StepKind.EXCHANGE):
            before, after = self.layouts.at(np.array([source, target])).layouts(dims)
            return Step(kind, axes, source=before, target=after)
        enters = kind in (StepKind.SLICE, StepKind.REDUCE_SCATTER)
        cutting = target if enters else source
        axes = tuple(sorted(axes, key=lambda axis: self.layouts.place[cutting, axis]))
        dim = dims[self.layouts.kind[cutting, axes[0]] - SHARD]
        to_dim = dims[self.layouts.kind[target, axes[0]] - SHARD] if kind is StepKind.ALL_TO_ALL else 0
        return Step(kind, axes, dim, to_dim)


@dataclass(frozen=True)
class _Patterns:
    """The part of single steps that does not depend on mesh degrees. In `kind`, permutations are exchanges too."""

    layouts: LayoutCodes
    kind: Numbers
    group: Numbers


@lru_cache(maxsize=64)
def _patterns(dims: int, axes: int) -> _Patterns:
    every = layouts_of_any_extents(dims, axes)[0]
    layouts = every.at((every.kind != REPLICATE).all(axis=1))
    before, after = layouts.kind[:, None, :], layouts.kind[None, :, :]
    moved = layouts.place[:, None, :] != layouts.place[None, :, :]
    changed = (before != after) | moved
    group = changed @ (1 << np.arange(axes, dtype=np.int64))
    kind = np.where(_alike(changed, before) & _alike(changed, after), _by_class(changed, before, after), UNKNOWN)
    swaps = kind == _NUMBER[StepKind.ALL_TO_ALL]
    shift = layouts.place[:, None, :] - layouts.place[None, :, :]
    kind[swaps & ~_alike(changed, shift)] = UNKNOWN
    kind[group == 0] = NOTHING
    copies = (((before != PARTIAL) & (after != PARTIAL)) | ~changed).all(axis=2) & (kind == UNKNOWN)
    kind[copies] = _NUMBER[StepKind.EXCHANGE]
    return _Patterns(layouts, kind, group)


@lru_cache(maxsize=256)
def single_steps(extents: tuple[int, ...], mesh: Mesh) -> SingleSteps:
    """The single steps of a tensor with these extents, each of which mesh axes may cut."""
    found = _patterns(len(extents), len(mesh.axes))
    divide = np.flatnonzero(dividing(found.layouts, extents, mesh))
    layouts, every = found.layouts.at(divide), np.ix_(divide, divide)
    kind, group = found.kind[every], found.group[every]
    exchanges = np.flatnonzero(kind == _NUMBER[StepKind.EXCHANGE])
    rows, columns = np.divmod(exchanges, len(divide))
    different: dict[tuple[int, ...], int] = {}
    counts = map(tuple, block_counts(layouts, len(extents), mesh).tolist())
    cut = np.array([different.setdefault(blocks, len(different)) for blocks in counts])
    kind.ravel()[exchanges[cut.take(rows) == cut.take(columns)]] = _NUMBER[StepKind.PERMUTE]
    received = np.zeros(kind.shape)
    received.ravel()[exchanges] = _received(_cuts(layouts, len(extents), mesh), rows, columns)
    return SingleSteps(layouts, divide, kind, group, received, layouts.local_fractions(mesh))


@lru_cache(maxsize=256)
def step_layouts(dims: tuple[int, ...], axes: int) -> tuple[Layout, ...]:
    """All layouts that single steps connect, as objects. `dims` are the tensor's dimensions that can be cut."""
    return tuple(_patterns(len(dims), axes).layouts.layouts(dims))


def _alike(changed: Mask, numbers: Numbers) -> Mask:
    """Whether all mesh axes that change have the same number. Shape [layouts, layouts]."""
    most = np.where(changed, numbers, -(1 << 30)).max(axis=2, initial=-(1 << 30))
    least = np.where(changed, numbers, 1 << 30).min(axis=2, initial=1 << 30)
    return np.asarray(most <= least) if changed.shape[2] else np.ones(changed.shape[:2], dtype=bool)


def _by_class(changed: Mask, before: Numbers, after: Numbers) -> Numbers:
    """The named collective, if all axes that change have one class. Shards that stay in a dimension have none."""
    here, there = (np.where(changed, kind, INVARIANT).max(axis=2, initial=INVARIANT) for kind in (before, after))
    classes = (np.where(kind == INVARIANT, 0, np.where(kind == PARTIAL, 1, 2)) for kind in (here, there))
    return np.where((here == there) & (here >= SHARD), UNKNOWN, _BY_CLASS[tuple(classes)])


# --------------------------------------------------------------------------------------------- what is received


def received_fraction(source: Layout, target: Layout, mesh: Mesh, dims: tuple[int, ...]) -> float:
    """The most that any device receives from others between partition layouts, as a fraction of the whole tensor."""
    cuts = _cuts(encode([source, target], dims), len(dims), mesh)
    return float(_received(cuts, np.array([0]), np.array([1]))[0])


@dataclass(frozen=True)
class _Cuts:
    """The different ways in which layouts cut one dimension; `number` is the cut of each layout.

    `own[i, j]` is the overlap of the slices of cuts i and j at every corner of the mesh, `length[i]` the length of a
    slice, both as fractions of the dimension.
    """

    number: Numbers
    own: Fractions
    length: Fractions


def _cuts(layouts: LayoutCodes, dims: int, mesh: Mesh) -> list[_Cuts]:
    """The cuts of each dimension."""
    axes = len(mesh.axes)
    corners = np.array(list(product(*({0, axis.degree - 1} for axis in mesh.axes))), dtype=np.int64)
    found = []
    for dim in range(dims):
        places = np.where(layouts.kind == SHARD + dim, layouts.place + 1, 0)
        keys = places @ (axes + 1) ** np.arange(axes, dtype=np.int64)
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        start, end = _blocks(layouts.at(first), dim, mesh, corners)
        own = np.minimum(end[:, None], end) - np.maximum(start[:, None], start)
        found.append(_Cuts(number, np.maximum(own, 0.0), (end - start)[:, 0]))
    return found


def _received(cuts: Sequence[_Cuts], sources: Numbers, targets: Numbers) -> Fractions:
    """The most that a device lacks of the target's slice, for each pair of source and target; no sums change in a pair.

    Along each dimension the overlap of the two slices is a concave function of the device's coordinates, cut off at 0.
    The product of the overlaps is therefore least at a corner of the mesh, and only corners are examined.
    """
    wanted, least = np.ones(len(sources)), np.full(len(sources), np.inf if cuts else 1.0)
    pairs = []
    for cut in cuts:
        there = cut.number.take(targets)
        wanted *= cut.length.take(there)
        pairs.append((there * len(cut.length) + cut.number.take(sources), cut.own.reshape(len(cut.length) ** 2, -1)))
    for corner in range(pairs[0][1].shape[1] if pairs else 0):
        own = np.ones(len(sources))
        for pair, held in pairs:
            own *= held[:, corner].take(pair)
        np.minimum(least, own, out=least)
    lacking = wanted - least
    return np.asarray(np.where(lacking > 1e-12 * wanted, lacking, 0.0))


def _blocks(layouts: LayoutCodes, dim: int, mesh: Mesh, coordinates: Numbers) -> tuple[Fractions, Fractions]:
    """The interval of a dimension, scaled to [0, 1), that each device holds. Shape [layouts, devices] each."""
    start, length = np.zeros((len(layouts), len(coordinates))), np.ones((len(layouts), 1))
    for place in range(len(mesh.axes)):
        for axis, degree in enumerate(mesh.degrees):
            cuts = (layouts.kind[:, axis] == SHARD + dim) & (layouts.place[:, axis] == place)
            length[cuts] /= degree
            start[cuts] += coordinates[:, axis] * length[cuts]
    return start, start + length
