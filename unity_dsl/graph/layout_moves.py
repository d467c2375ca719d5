"""Elementary moves between all layouts of a tensor, by declared parallel ops, as arrays.

A move is the composition of two declared parallel ops (leave one kind, enter another) along one mesh axis or a group of
them, and at most one step each way. The backward of a move from A to B is the move from Bᵀ to Aᵀ, since the cotangent
of a value in layout L has layout Lᵀ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from .collective_steps import LOCAL_STEPS, StepKind
from .layout import Mesh
from .layout_codes import (
    INVARIANT,
    PARTIAL,
    REPLICATE,
    SHARD,
    Fractions,
    LayoutCodes,
    Mask,
    Numbers,
    find,
    places_in_order,
)
from .layout_exchange import received_fractions

STEP_KINDS = tuple(StepKind)
"""Kinds of steps by their numbers; -1 stands for none."""

IS_LOCAL = np.array([kind in LOCAL_STEPS for kind in STEP_KINDS])
NONE = -1
_SLICE, _MASK, _PAD, GATHER, ALL_REDUCE, _SCATTER, _ALL_TO_ALL, EXCHANGE, _PERMUTE = range(len(STEP_KINDS))

_STEP = np.array(
    [
        [NONE, NONE, _MASK, _SLICE],
        [NONE, NONE, _MASK, _SLICE],
        [ALL_REDUCE, ALL_REDUCE, NONE, _SCATTER],
        [GATHER, GATHER, _PAD, _ALL_TO_ALL],
    ]
)
"""What a change along mesh axes does, from Invariant, Replicate, Partial and a shard to each of these."""


@dataclass(frozen=True)
class StepArrays:
    """What moves do in one direction. An all-to-all gathers `dim` and cuts `to_dim`.

    `received` is what exchanges move, as a fraction of the whole tensor.
    """

    kind: Numbers
    dim: Numbers
    to_dim: Numbers
    received: Fractions


@dataclass(frozen=True)
class Moves:
    """Moves between numbered layouts, in the order of their sources. `group` are the mesh axes as a bit set."""

    source: Numbers
    target: Numbers
    group: Numbers
    forward: StepArrays
    backward: StepArrays


@dataclass(frozen=True)
class _Family:
    """Moves of one sort from some of the layouts. Exchanges have as group what they change."""

    source: Numbers
    target: LayoutCodes
    axes: tuple[int, ...]
    exchange: Mask


def find_moves(layouts: LayoutCodes, dims: int, mesh: Mesh) -> Moves:
    """Every elementary move between these layouts of a tensor with so many dimensions."""
    nothing = np.zeros(0, dtype=np.int64)  # one device has no moves
    families = [_Family(nothing, layouts.at(nothing), (0,), nothing.astype(bool)), *_families(layouts, dims)]
    source = np.concatenate([family.source for family in families])
    target = LayoutCodes(
        np.concatenate([family.target.kind for family in families]),
        np.concatenate([family.target.place for family in families]),
    )
    sizes = [len(family.source) for family in families]
    axis = np.repeat([family.axes[0] for family in families], sizes)
    group = np.repeat([sum(1 << axis for axis in family.axes) for family in families], sizes)
    exchange = np.concatenate([family.exchange for family in families])

    found = find(target, layouts, dims)
    kept = np.flatnonzero(found >= 0)
    kept = kept[np.argsort(source[kept], kind="stable")]
    source, target, found = source[kept], target.at(kept), found[kept]
    axis, exchange = axis[kept], exchange[kept]

    before = layouts.at(source)
    changed = (before.kind != target.kind) | (before.place != target.place)
    bits = np.where(exchange, changed @ (1 << np.arange(len(mesh.axes), dtype=np.int64)), group[kept])
    there = _steps(before, target, axis, exchange, mesh)
    back = _steps(target.transpose, before.transpose, axis, exchange, mesh)
    return Moves(source, found, bits, there, back)


def _steps(before: LayoutCodes, after: LayoutCodes, axis: Numbers, exchange: Mask, mesh: Mesh) -> StepArrays:
    rows = np.arange(len(before))
    here, there = before.kind[rows, axis], after.kind[rows, axis]
    kind = np.where(exchange, EXCHANGE, _STEP[np.minimum(here, SHARD), np.minimum(there, SHARD)])
    of_dim = np.isin(kind, (_SLICE, _PAD, GATHER, _SCATTER, _ALL_TO_ALL))
    dim = np.where(of_dim, np.where(here >= SHARD, here, there) - SHARD, 0)
    received = np.zeros(len(before))
    received[exchange] = received_fractions(before.at(exchange), after.at(exchange), mesh)
    return StepArrays(kind, dim, np.where(kind == _ALL_TO_ALL, there - SHARD, 0), received)


# ------------------------------------------------------------------------------------------------- families


def _families(layouts: LayoutCodes, dims: int) -> Iterator[_Family]:
    """In the order in which moves of one source are preferred where paths weigh the same."""
    axes = range(layouts.kind.shape[1])
    for kind in range(SHARD + dims):
        for axis in axes:
            yield _to_kind(layouts, axis, kind)
    groups = [group for size in range(2, len(axes) + 1) for group in combinations(axes, size)]
    for group in groups:
        for kind in (INVARIANT, REPLICATE):
            yield _of_group(layouts, group, PARTIAL, kind)
    for group in groups:
        yield _of_group(layouts, group, INVARIANT, REPLICATE)
    for dim in range(dims):
        yield _reordering(layouts, dim)
    for axis in axes:
        for other in axes:
            yield _swap(layouts, axis, other)


def _to_kind(layouts: LayoutCodes, axis: int, kind: int) -> _Family:
    """One mesh axis gets another kind. What is nested in it is exchanged, into mesh order only."""
    here = layouts.kind[:, axis]
    simple = (here < SHARD) | layouts.is_minor(axis)
    target = layouts.with_kind(axis, kind)
    rows = np.flatnonzero((here != kind) & (simple | target.in_mesh_order))
    return _Family(rows, target.at(rows), (axis,), ~simple[rows])


def _of_group(layouts: LayoutCodes, group: tuple[int, ...], before: int, after: int) -> _Family:
    """Several mesh axes at once, of one plain kind, get another."""
    rows = np.flatnonzero((layouts.kind[:, group] == before).all(axis=1))
    kind = layouts.kind[rows]
    kind[:, group] = after
    return _Family(rows, LayoutCodes(kind, layouts.place[rows]), group, np.zeros(len(rows), dtype=bool))


def _reordering(layouts: LayoutCodes, dim: int) -> _Family:
    """Nestings out of order put into mesh order: they arise on the way, where a major axis leaves or arrives."""
    cut = layouts.kind == SHARD + dim
    place = np.where(cut, places_in_order(layouts.kind), layouts.place)
    rows = np.flatnonzero((place != layouts.place).any(axis=1))
    return _Family(rows, LayoutCodes(layouts.kind[rows], place[rows]), (0,), np.ones(len(rows), dtype=bool))


def _swap(layouts: LayoutCodes, axis: int, other: int) -> _Family:
    """A sharded axis and a replicated or absent one trade places: a permutation of slices, not a gather."""
    kind, found = layouts.kind[:, axis], layouts.kind[:, other]
    rows = np.flatnonzero(layouts.is_minor(axis) & (found < PARTIAL))
    target = layouts.at(rows).with_kind(axis, found[rows]).with_kind(other, kind[rows])
    ordered = target.in_mesh_order
    return _Family(rows[ordered], target.at(ordered), (0,), np.ones(int(ordered.sum()), dtype=bool))
