"""Converts one layout into another: recognises the collectives of a path of moves, forward and adjoint.

A conversion is a path of elementary moves (`moves`). A move's composed index map (`exchange.transfers`) is what it
means; its steps are the collectives that map is recognised as.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from .collective_steps import Step, StepKind
from .layout import Cut, Invariant, Layout, Mesh, Replicate, Shard, Window
from .layout_moves import EXCHANGE, STEP_KINDS, StepArrays
from .lightest_paths import LightestPaths, lightest_paths


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


def exchange_move(source: Layout, target: Layout) -> Move:
    """Any conversion at all, as one exchange each way."""
    changed = tuple(axis for axis, (a, b) in enumerate(zip(source.kinds, target.kinds, strict=True)) if a != b)
    return Move(
        source,
        target,
        Step(StepKind.EXCHANGE, changed, source=source, target=target),
        Step(StepKind.EXCHANGE, changed, source=target.transpose, target=source.transpose),
    )


# --------------------------------------------------------------------------------------------------- paths


@dataclass(frozen=True)
class MoveTable:
    """Layouts of a tensor and the lightest paths between them, by number. `dims` are those that can be cut."""

    layouts: tuple[Layout, ...]
    number: dict[Layout, int]
    dims: tuple[int, ...]
    paths: LightestPaths

    @property
    def in_order(self) -> int:
        return self.paths.in_order

    def path(self, source: Layout, target: Layout) -> list[Move]:
        here, there = self.number[source], self.number[target]
        path = []
        while here != there:
            number = int(self.paths.first[here, there])
            path.append(self.move(number))
            here = int(self.paths.moves.target[number])
        return path

    def move(self, number: int) -> Move:
        moves = self.paths.moves
        source, target = (self.layouts[int(ends[number])] for ends in (moves.source, moves.target))
        if moves.forward.kind[number] == EXCHANGE:
            return exchange_move(source, target)
        return Move(source, target, self._step(number, moves.forward), self._step(number, moves.backward))

    def _step(self, number: int, steps: StepArrays) -> Step | None:
        if steps.kind[number] < 0:
            return None
        kind, group = STEP_KINDS[steps.kind[number]], int(self.paths.moves.group[number])
        axes = tuple(axis for axis in range(group.bit_length()) if group >> axis & 1)
        if kind in (StepKind.MASK, StepKind.ALL_REDUCE):
            return Step(kind, axes)
        to_dim = self.dims[steps.to_dim[number]] if kind is StepKind.ALL_TO_ALL else 0
        return Step(kind, axes, self.dims[steps.dim[number]], to_dim)


def divisors(shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    """Per dimension what it has in common with the number of devices: all that conversions need to know of a shape."""
    return tuple(gcd(extent, mesh.size) for extent in shape)


def divides(layout: Layout, shape: Sequence[int], mesh: Mesh) -> bool:
    """Whether every dimension can be cut as the layout says. `shape` may be given by its `divisors`."""
    return all(extent % mesh.degree(layout.nesting(dim)) == 0 for dim, extent in enumerate(shape))


def cut_extents(shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    """The `divisors` of the dimensions that can be cut: what prices of conversions depend on."""
    return tuple(extent for extent in divisors(shape, mesh) if extent > 1)


@lru_cache(maxsize=256)
def move_table(shape: tuple[int, ...], mesh: Mesh) -> MoveTable:
    """All-pairs lightest conversions for tensors whose `divisors` are `shape`.

    Paths never pass through a layout that does not divide the tensor.
    """
    dims = tuple(dim for dim, extent in enumerate(shape) if extent > 1)
    paths = lightest_paths(tuple(shape[dim] for dim in dims), mesh)
    layouts = tuple(paths.layouts.layouts(dims))
    return MoveTable(layouts, {layout: number for number, layout in enumerate(layouts)}, dims, paths)


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
