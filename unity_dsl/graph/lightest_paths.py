"""Cheapest paths of moves between all pairs of layouts of a tensor: Bellman-Ford over arrays of moves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .layout import Mesh
from .layout_codes import SHARD, Fractions, LayoutCodes, Numbers, all_layouts, find
from .layout_moves import ALL_REDUCE, EXCHANGE, GATHER, IS_LOCAL, NONE, Moves, find_moves

_SLACK = 1e-12
"""Weights that differ by less are equal: rounding does not choose between paths."""
_AT_ONCE = 32
_STEP_WEIGHT = 1e-4
_EXCHANGE_WEIGHT = 1.5
"""An exchange packs and scatters slices and has no ring: it is preferred only where it saves a third of the bytes."""


@dataclass(frozen=True)
class LightestPaths:
    """Every layout of a tensor whose dimensions can all be cut, the moves between them, and the lightest paths.

    `layouts` are all nestings of partition shards; those in mesh order come first (`in_order` of them): the search
    chooses among these, paths may pass through the others. `first[i, j]` is the number of the first move of the
    lightest path from layout i to layout j, -1 where i == j.
    """

    layouts: LayoutCodes
    in_order: int
    moves: Moves
    first: Numbers


@lru_cache(maxsize=64)
def lightest_paths(extents: tuple[int, ...], mesh: Mesh) -> LightestPaths:
    """All pairs, for tensors of such `cut_extents`. They do not depend on the machine."""
    layouts, in_order = all_layouts(extents, mesh)
    moves = find_moves(layouts, len(extents), mesh)
    ways = _Ways(moves, weigh(moves, layouts, mesh), len(layouts))
    first = np.empty((len(layouts), len(layouts)), dtype=np.int64)
    likeness = _liken(layouts, extents)
    examples, example = np.unique(likeness.example, return_inverse=True)
    lightest = np.hstack([ways.lightest(part) for part in _parts(examples)])
    for renaming, renamed in enumerate(likeness.renamed):
        for targets in _parts(np.flatnonzero(likeness.renaming == renaming)):
            first[:, targets] = ways.first(lightest[np.ix_(renamed, example[targets])], targets)
    return LightestPaths(layouts, in_order, moves, first)


def weigh(moves: Moves, layouts: LayoutCodes, mesh: Mesh) -> Fractions:
    """What paths minimise: fractions of the tensor received, forwards and backwards, slow links counting more.

    Ring algorithms: (p-1)/p of the full extent for gather and reduce-scatter, twice that for all-reduce.
    """
    axes = np.arange(len(mesh.axes))
    inside = moves.group[:, None] >> axes & 1
    degree = np.where(inside, mesh.degrees, 1).prod(axis=1)
    slowest = np.where(inside, [axis.level for axis in mesh.axes], 0).max(axis=1, initial=0)
    held = layouts.local_fractions(mesh)
    weight = np.full(len(moves.source), 1e-8)
    for steps, start in ((moves.forward, moves.source), (moves.backward, moves.target)):
        moved = held[start] * (degree - 1) / degree
        moved *= np.select([steps.kind == GATHER, steps.kind == ALL_REDUCE], [degree, 2], 1)
        moved = np.where(steps.kind == EXCHANGE, steps.received * _EXCHANGE_WEIGHT, moved)
        weight += np.where(IS_LOCAL[steps.kind] | (steps.kind == NONE), 0.0, moved * 8.0**slowest)
        weight += _STEP_WEIGHT * np.select([steps.kind == NONE, IS_LOCAL[steps.kind]], [0.0, 0.01], 1.0)
    return weight


class _Ways:
    """Moves arranged so that one operation goes a move from every layout that has so many.

    Layouts are in `rows` by how many moves they have, the most first; `steps` has, per k, the number of the k-th move
    of those that have more than k, the row where it ends, and its weight.
    """

    def __init__(self, moves: Moves, weights: Fractions, count: int) -> None:
        self.count = count
        degree = np.bincount(moves.source, minlength=count)
        self.layouts = np.argsort(-degree, kind="stable")
        self.row = np.empty(count, dtype=np.int64)
        self.row[self.layouts] = np.arange(count)
        begin = (np.cumsum(degree) - degree)[self.layouts]
        slots = [begin[: int((degree > k).sum())] + k for k in range(int(degree.max(initial=0)))]
        self.steps = [(slot[:, None], self.row[moves.target[slot]], weights[slot, None]) for slot in slots]

    def lightest(self, targets: Numbers) -> Fractions:
        """The weights of the lightest paths from every layout to some targets.

        Paths have few moves, so going over all moves until nothing changes (Bellman, Ford) is faster than going over
        all layouts between.
        """
        lightest = np.full((self.count, len(targets)), np.inf)
        lightest[self.row[targets], np.arange(len(targets))] = 0.0
        through = np.empty_like(lightest)
        while True:
            before = lightest.copy()
            for _, end, weight in self.steps:
                part = through[: len(end)]
                np.take(lightest, end, axis=0, out=part)
                part += weight
                np.minimum(lightest[: len(end)], part, out=lightest[: len(end)])
            if (lightest >= before - _SLACK).all():
                return lightest[self.row]

    def first(self, lightest: Fractions, targets: Numbers) -> Numbers:
        """The first moves of paths that weigh so much: of several the first in order; -1 from a target to itself."""
        lightest = lightest[self.layouts]
        limit = lightest + _SLACK
        chosen = np.full(lightest.shape, -1, dtype=np.int64)
        for number, end, weight in reversed(self.steps):
            np.copyto(chosen[: len(end)], number, where=lightest.take(end, axis=0) + weight <= limit[: len(end)])
        chosen[self.row[targets], np.arange(len(targets))] = -1
        return chosen[self.row]


def _parts(targets: Numbers) -> list[Numbers]:
    """Some targets at a time, to stay in the cache."""
    return [targets[low : low + _AT_ONCE] for low in range(0, len(targets), _AT_ONCE)]


@dataclass(frozen=True)
class _Likeness:
    """Layouts that differ only in which of the dimensions of one extent are cut: what they weigh is the same.

    A layout is made its `example` by the `renaming` of that number, and every layout i by it `renamed[renaming][i]`.
    """

    example: Numbers
    renaming: Numbers
    renamed: Numbers


def _liken(layouts: LayoutCodes, extents: tuple[int, ...]) -> _Likeness:
    """In examples the dimensions of each extent are cut in their order, by the first mesh axes that cut them."""
    count, axes = layouts.kind.shape
    first_cut = np.full((count, len(extents)), axes)
    for axis in reversed(range(axes)):
        rows = np.flatnonzero(layouts.kind[:, axis] >= SHARD)
        first_cut[rows, layouts.kind[rows, axis] - SHARD] = axis
    names = np.empty((count, len(extents)), dtype=np.int64)
    for extent in set(extents):
        dims = np.array([dim for dim, other in enumerate(extents) if other == extent])
        order = np.argsort(first_cut[:, dims], axis=1, kind="stable")
        np.put_along_axis(names, dims[order], np.broadcast_to(dims, order.shape), axis=1)
    each, renaming = np.unique(names, axis=0, return_inverse=True)
    plain = np.arange(SHARD)
    kinds = [np.concatenate([plain, SHARD + name])[layouts.kind] for name in each]
    renamed = np.array([find(LayoutCodes(kind, layouts.place), layouts, len(extents)) for kind in kinds])
    renaming = renaming.reshape(-1)
    return _Likeness(renamed[renaming, np.arange(count)], renaming, renamed)
