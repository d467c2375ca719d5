"""From one layout to another: the collectives a conversion amounts to, forwards and for the cotangent.

A conversion is a path of elementary moves, each the composition of two declared parallel ops (leave one kind, enter
another) along one mesh axis or a group of them. The move's composed index map (`exchange.transfers`) is what it means;
the steps below are the collectives that map is recognised as. The backward of a move from A to B is the move from Bᵀ to
Aᵀ, since the cotangent of a value in layout L has layout Lᵀ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import chain, combinations, product
from math import gcd

import numpy as np
import numpy.typing as npt

from .exchange import received_fraction
from .layout import Cut, Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, Window, nest


class StepKind(StrEnum):
    SLICE = "slice"
    MASK = "mask"
    PAD = "pad"
    ALL_GATHER = "all_gather"
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    EXCHANGE = "exchange"


LOCAL_STEPS = frozenset({StepKind.SLICE, StepKind.MASK, StepKind.PAD})


@dataclass(frozen=True)
class Step:
    """One local or collective operation on local tensors, over the group spanned by mesh axes (major first).

    | kind           | effect on the local tensor                                                        |
    |----------------|-----------------------------------------------------------------------------------|
    | slice          | keep this device's block of `dim`                                                 |
    | mask           | keep the value on the group's first device, zeros on the others                   |
    | pad            | put the block into zeros of the group's whole extent along `dim`                  |
    | all_gather     | concatenate the group's blocks along `dim`                                        |
    | all_reduce     | sum over the group                                                                |
    | reduce_scatter | sum over the group, keep this device's block of `dim`                             |
    | all_to_all     | cut `to_dim` into blocks, send them out, concatenate what arrives along `dim`     |
    | exchange       | any other index map: the transfers of slices from `source` to `target`            |
    """

    kind: StepKind
    axes: tuple[int, ...]
    dim: int = 0
    to_dim: int = 0
    source: Layout | None = None
    target: Layout | None = None


@dataclass(frozen=True)
class Conversion:
    """Steps that turn one layout's local tensors into another's, and those that take the cotangent back."""

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]


@dataclass(frozen=True)
class Move:
    """An elementary conversion: at most one step each way."""

    source: Layout
    target: Layout
    forward: Step | None
    backward: Step | None


def place(layout: Layout, axis: int, kind: Kind) -> Layout:
    """The layout with one mesh axis's kind replaced; nesting is renumbered, a new Shard becomes the minor one."""
    kinds = list(layout.kinds)
    kinds[axis] = Invariant()
    for dim in {found.dim for found in kinds if isinstance(found, Shard)}:
        for position, other in enumerate(Layout(tuple(kinds)).nesting(dim)):
            shard = kinds[other]
            assert isinstance(shard, Shard)
            kinds[other] = Shard(dim, position, shard.by, shard.attributes)
    if isinstance(kind, Shard):
        kind = Shard(kind.dim, len(Layout(tuple(kinds)).nesting(kind.dim)), kind.by, kind.attributes)
    kinds[axis] = kind
    return Layout(tuple(kinds))


def moves_to(layout: Layout, kind: Kind) -> Iterator[Move]:
    """Every elementary move that gives one mesh axis this kind: I, R, P or a partition shard of a dimension."""
    for axis, here in enumerate(layout.kinds):
        if here == kind or (isinstance(here, Shard) and isinstance(kind, Shard) and here.dim == kind.dim):
            continue
        target = place(layout, axis, kind)
        if not isinstance(here, Shard) or _is_minor(layout, axis):
            yield Move(layout, target, _step(layout, target, (axis,)), _backward_step(layout, target, (axis,)))
        elif _in_mesh_order(target):
            yield exchange_move(layout, target)


def joint_moves(layout: Layout) -> Iterator[Move]:
    """Every elementary move of several mesh axes at once."""
    for group in _groups(layout, Partial):
        for kind in (Invariant(), Replicate()):
            yield _group_move(layout, group, kind)
    for group in _groups(layout, Invariant):
        yield _group_move(layout, group, Replicate())
    yield from _reorderings(layout)
    yield from _swaps(layout)


def exchange_move(source: Layout, target: Layout) -> Move:
    """Any conversion at all, as one exchange each way."""
    changed = tuple(axis for axis, (a, b) in enumerate(zip(source.kinds, target.kinds, strict=True)) if a != b)
    return Move(
        source,
        target,
        Step(StepKind.EXCHANGE, changed, source=source, target=target),
        Step(StepKind.EXCHANGE, changed, source=target.transpose, target=source.transpose),
    )


def _is_minor(layout: Layout, axis: int) -> bool:
    kind = layout.kinds[axis]
    return isinstance(kind, Shard) and layout.nesting(kind.dim)[-1] == axis


def _in_mesh_order(layout: Layout) -> bool:
    dims = {kind.dim for kind in layout.kinds if isinstance(kind, Shard)}
    return all(list(layout.nesting(dim)) == sorted(layout.nesting(dim)) for dim in dims)


def _groups(layout: Layout, kind: type[Kind]) -> Iterator[tuple[int, ...]]:
    axes = layout.where(kind)
    for size in range(2, len(axes) + 1):
        yield from combinations(axes, size)


def _group_move(layout: Layout, group: tuple[int, ...], kind: Kind) -> Move:
    target = layout
    for axis in group:
        target = place(target, axis, kind)
    return Move(layout, target, _step(layout, target, group), _backward_step(layout, target, group))


def _reorderings(layout: Layout) -> Iterator[Move]:
    """Out-of-order nestings put into mesh order: they arise on the way, where a major axis leaves or arrives."""
    for dim in {kind.dim for kind in layout.kinds if isinstance(kind, Shard)}:
        nesting = layout.nesting(dim)
        if list(nesting) != sorted(nesting):
            kinds = list(layout.kinds)
            for position, axis in enumerate(sorted(nesting)):
                shard = kinds[axis]
                assert isinstance(shard, Shard)
                kinds[axis] = Shard(dim, position, shard.by, shard.attributes)
            yield exchange_move(layout, Layout(tuple(kinds)))


def _swaps(layout: Layout) -> Iterator[Move]:
    """A sharded axis and a replicated or absent one trade places: a permutation of slices, not a gather."""
    for axis, kind in enumerate(layout.kinds):
        if not isinstance(kind, Shard) or not _is_minor(layout, axis):
            continue
        for other, found in enumerate(layout.kinds):
            if isinstance(found, Invariant | Replicate):
                target = place(place(layout, axis, found), other, kind)
                if _in_mesh_order(target):
                    yield exchange_move(layout, target)


def _step(source: Layout, target: Layout, axes: tuple[int, ...]) -> Step | None:
    """What a change along `axes` (all of one kind to all of one kind) does to the local tensor."""
    before, after = source.kinds[axes[0]], target.kinds[axes[0]]
    match before, after:
        case (Invariant() | Replicate(), Invariant() | Replicate()):
            return None
        case (Invariant() | Replicate(), Shard(dim=dim)):
            return Step(StepKind.SLICE, axes, dim)
        case (Invariant() | Replicate(), Partial()):
            return Step(StepKind.MASK, axes)
        case (Shard(dim=dim), Invariant() | Replicate()):
            return Step(StepKind.ALL_GATHER, axes, dim)
        case (Shard(dim=dim), Shard(dim=to_dim)):
            return Step(StepKind.ALL_TO_ALL, axes, dim, to_dim)
        case (Shard(dim=dim), Partial()):
            return Step(StepKind.PAD, axes, dim)
        case (Partial(), Invariant() | Replicate()):
            return Step(StepKind.ALL_REDUCE, axes)
        case (Partial(), Shard(dim=dim)):
            return Step(StepKind.REDUCE_SCATTER, axes, dim)
    raise AssertionError(f"no move from {before} to {after}")


def _backward_step(source: Layout, target: Layout, axes: tuple[int, ...]) -> Step | None:
    return _step(target.transpose, source.transpose, axes)


# --------------------------------------------------------------------------------------------------- paths


def step_bytes(step: Step | None, layout: Layout, mesh: Mesh) -> float:
    """Bytes a device receives in a step that starts from `layout`, as a fraction of the whole tensor.

    Ring algorithms: (p-1)/p of the full extent for gather and reduce-scatter, twice that for all-reduce.
    """
    if step is None or step.kind in LOCAL_STEPS:
        return 0.0
    if step.kind is StepKind.EXCHANGE:
        assert step.source is not None and step.target is not None
        return received_fraction(step.source, step.target, mesh)
    degree = mesh.degree(step.axes)
    held = 1.0
    for axis in layout.where(Shard):
        held /= mesh.axes[axis].degree
    moved = held * (degree - 1) / degree
    match step.kind:
        case StepKind.ALL_GATHER:
            return moved * degree
        case StepKind.ALL_REDUCE:
            return 2 * moved
    return moved


Numbers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]

_SLACK = 1e-12
"""Weights that differ by less are equal: rounding does not choose between paths."""
_AT_ONCE = 32
_STEP_WEIGHT = 1e-4
_EXCHANGE_WEIGHT = 1.5
"""An exchange packs and scatters slices and has no ring: it is preferred only where it saves a third of the bytes."""


def move_weight(move: Move, mesh: Mesh) -> float:
    """What paths minimise: fractions of the tensor received, forwards and backwards, slow links counting more."""
    weight = 0.0
    for step, layout in ((move.forward, move.source), (move.backward, move.target.transpose)):
        if step is not None:
            slowest = max(mesh.axes[axis].level for axis in step.axes)
            kind_weight = _EXCHANGE_WEIGHT if step.kind is StepKind.EXCHANGE else 1.0
            weight += step_bytes(step, layout, mesh) * kind_weight * 8**slowest
            weight += _STEP_WEIGHT * (0.01 if step.kind in LOCAL_STEPS else 1.0)
    return weight + 1e-8


@dataclass(frozen=True)
class MoveTable:
    """Every layout of a tensor rank on a mesh, the moves between them, and the cheapest paths.

    `layouts` are all nestings of partition shards; those in mesh order come first (`in_order` of them): the search
    chooses among these, paths may pass through the others. `first[i, j]` is the number of the first move of the
    cheapest path from layout i to layout j, -1 where i == j.
    """

    layouts: tuple[Layout, ...]
    in_order: int
    moves: tuple[Move, ...]
    first: np.ndarray
    number: dict[Layout, int]

    def path(self, source: Layout, target: Layout) -> list[Move]:
        here, there = self.number[source], self.number[target]
        path = []
        while here != there:
            path.append(self.moves[self.first[here, there]])
            here = self.number[path[-1].target]
        return path


def divisors(shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    """Per dimension what it has in common with the number of devices: all that conversions need to know of a shape."""
    return tuple(gcd(extent, mesh.size) for extent in shape)


def divides(layout: Layout, shape: Sequence[int], mesh: Mesh) -> bool:
    """Whether every dimension can be cut as the layout says. `shape` may be given by its `divisors`."""
    return all(extent % mesh.degree(layout.nesting(dim)) == 0 for dim, extent in enumerate(shape))


@lru_cache(maxsize=64)
def move_table(shape: tuple[int, ...], mesh: Mesh) -> MoveTable:
    """All-pairs cheapest conversions by `move_weight` for tensors whose `divisors` are `shape`.

    Paths never pass through a layout that does not divide the tensor. They do not depend on the machine.
    """
    kinds: tuple[Kind, ...] = (
        Invariant(),
        Replicate(),
        Partial(),
        *(Shard(dim) for dim, extent in enumerate(shape) if extent > 1),
    )
    every = (nest(chosen) for chosen in product(kinds, repeat=len(mesh.axes)))
    ordered = [layout for layout in every if divides(layout, shape, mesh)]
    number = {layout: i for i, layout in enumerate(ordered)}
    found: list[Move] = []
    lengths: list[float] = []
    layouts = list(ordered)
    for layout in layouts:  # grows while it is walked
        weighted = [_weighted_moves(layout, kind, mesh) for kind in (*kinds, None)]
        for move, weight in chain.from_iterable(weighted):
            if move.target not in number:
                if not divides(move.target, shape, mesh):
                    continue
                number[move.target] = len(layouts)
                layouts.append(move.target)
            found.append(move)
            lengths.append(weight)
    ends = np.array([number[move.target] for move in found], dtype=np.int64)
    starts = np.array([number[move.source] for move in found], dtype=np.int64)
    first = _first_moves(starts, ends, np.array(lengths), len(layouts))
    return MoveTable(tuple(layouts), len(ordered), tuple(found), first, number)


@lru_cache(maxsize=262144)
def _weighted_moves(layout: Layout, kind: Kind | None, mesh: Mesh) -> tuple[tuple[Move, float], ...]:
    """Moves to a kind, or those of several axes at once: the same whatever other dimensions the tensor has."""
    found = moves_to(layout, kind) if kind is not None else joint_moves(layout)
    return tuple((move, move_weight(move, mesh)) for move in found)


def _first_moves(starts: Numbers, ends: Numbers, lengths: Weights, count: int) -> Numbers:
    """The first move of the shortest path between every two layouts, -1 from one to itself.

    Moves are sorted by where they start, and every layout has some. Paths have few moves, so going over all moves until
    nothing changes (Bellman, Ford) is faster than going over all layouts between; some targets at a time, to stay in
    the cache.
    """
    first = np.full((count, count), -1, dtype=np.int64)
    groups = np.flatnonzero(np.diff(starts, prepend=-1)) if len(starts) else starts
    for low in range(0, count if len(starts) else 0, _AT_ONCE):
        targets = np.arange(low, min(low + _AT_ONCE, count))
        weights = np.full((count, len(targets)), np.inf)
        weights[targets, targets - low] = 0.0
        while True:
            through = weights[ends]
            through += lengths[:, None]
            shortest = np.minimum(weights, np.minimum.reduceat(through, groups, axis=0))
            if (shortest >= weights - _SLACK).all():
                break
            weights = shortest
        apart = np.where(through <= weights[starts] + _SLACK, np.arange(len(starts))[:, None], len(starts))
        first[:, targets] = np.minimum.reduceat(apart, groups, axis=0)
        first[targets, targets] = -1
    return first


@lru_cache(maxsize=65536)
def convert(source: Layout, target: Layout, mesh: Mesh, shape: tuple[int, ...]) -> Conversion:
    """The cheapest path of elementary moves between two layouts of a tensor, merged into steps.

    Dimensions after the last that either layout cuts take no part. Windows are left first and entered last, by an
    exchange with the layout without them. A layout that names another parallel op, or nests axes in an order that the
    table does not know, converts by one exchange each way.
    """
    path = _path(source, target, mesh, divisors(shape, mesh))
    forward = _merge([move.forward for move in path])
    backward = _merge([move.backward for move in reversed(path)])
    return Conversion(forward, backward)


def _path(source: Layout, target: Layout, mesh: Mesh, shape: tuple[int, ...]) -> list[Move]:
    if source == target:
        return []
    rank = 1 + max((kind.dim for kind in (*source.kinds, *target.kinds) if isinstance(kind, Cut)), default=-1)
    table = move_table(shape[:rank], mesh)
    if source in table.number and target in table.number:
        return table.path(source, target)
    left = without_windows(source)
    entered = before_windows(left, target)
    if left not in table.number or entered not in table.number:
        return [exchange_move(source, target)]
    leave = [] if left == source else [exchange_move(source, left)]
    enter = [] if entered == target else [exchange_move(entered, target)]
    return [*leave, *table.path(left, entered), *enter]


def without_windows(layout: Layout) -> Layout:
    """The slices without what they hold of their neighbours."""
    return Layout(tuple(Shard(k.dim, k.place) if isinstance(k, Window) else k for k in layout.kinds))


def before_windows(source: Layout, target: Layout) -> Layout:
    """The target where its windows are slices still, or, where every device has all of the dimension, not even that.

    A window of what a device has is cut out of it; one of slices takes from the neighbours.
    """
    kinds = list(target.kinds)
    for axis, kind in enumerate(kinds):
        if isinstance(kind, Window):
            here = [source.kinds[other] for other in target.nesting(kind.dim)]
            copies = all(isinstance(found, Invariant | Replicate) for found in here)
            kinds[axis] = source.kinds[axis] if copies else Shard(kind.dim, kind.place)
    return Layout(tuple(kinds))


def _merge(steps: list[Step | None]) -> tuple[Step, ...]:
    """Neighbouring steps of one kind on one dimension become one over the joint group."""
    merged: list[Step] = []
    for step in steps:
        if step is None:
            continue
        if merged and (joint := _joined(merged[-1], step)) is not None:
            merged[-1] = joint
        else:
            merged.append(step)
    return tuple(merged)


def _joined(first: Step, second: Step) -> Step | None:
    if first.kind is not second.kind or first.kind in (StepKind.EXCHANGE, StepKind.ALL_TO_ALL, StepKind.MASK):
        return None
    if first.kind is StepKind.ALL_REDUCE:
        return Step(first.kind, tuple(sorted(first.axes + second.axes)))
    if first.dim != second.dim:
        return None
    # Gathering and padding take the minor axis first, slicing and scattering the major one.
    gathers = first.kind in (StepKind.ALL_GATHER, StepKind.PAD)
    return Step(first.kind, second.axes + first.axes if gathers else first.axes + second.axes, first.dim)
