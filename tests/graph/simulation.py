"""Simulates all devices of a mesh in one process with NumPy: steps, transfers, layouts. A reference for the tests."""

from __future__ import annotations

from itertools import product

import numpy as np

from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.declared_slices import positions_of
from unity_dsl.graph.layout import At, Invariant, Layout, Mesh, Overlap, Partial, Replicate, Shard, Window, nest
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library

from .transfers import transfers

LIBRARY = load_library()

Locals = list[np.ndarray]


def encode(
    tensor: np.ndarray, layout: Layout, mesh: Mesh, rng: np.random.Generator, library: Library = LIBRARY
) -> Locals:
    """Local tensors of a layout: copies, slices, and random terms of a sum along Partial axes. Under At, devices at
    other coordinates hold NaN.
    """
    partial = layout.where(Partial)
    degree = mesh.degree(partial)
    terms = [rng.integers(-9, 9, tensor.shape).astype(float) for _ in range(degree - 1)]
    terms.append(tensor - sum(terms, np.zeros_like(tensor)))
    held = []
    for rank in range(mesh.size):
        here = mesh.coordinates(rank)
        number = 0
        for axis in partial:
            number = number * mesh.axes[axis].degree + here[axis]
        given = terms[number] if is_there(layout, here) else np.full_like(tensor, np.nan)
        held.append(take(given, layout, mesh, here, library))
    if layout.where(Overlap):  # each element is the sum over all devices that hold it: equal terms
        count = _count(layout, tensor.shape, mesh, library)
        held = [local / _at_least_one(count, layout, mesh, rank, library) for rank, local in enumerate(held)]
    return held


def is_there(layout: Layout, here: tuple[int, ...]) -> bool:
    """Whether a device holds any part of a tensor."""
    return all(here[axis] == kind.coordinate for axis, kind in enumerate(layout.kinds) if isinstance(kind, At))


def _at_least_one(count: np.ndarray, layout: Layout, mesh: Mesh, rank: int, library: Library) -> np.ndarray:
    return np.maximum(take(count, layout, mesh, mesh.coordinates(rank), library), 1)


def _count(layout: Layout, shape: tuple[int, ...], mesh: Mesh, library: Library) -> np.ndarray:
    """How many devices hold each element, among devices that differ only along cut axes."""
    ones = [np.ones(shape)] * mesh.size
    local = [take(one, layout, mesh, mesh.coordinates(rank), library) for rank, one in enumerate(ones)]
    cut = layout.where(Shard, Window, Overlap)
    here = [
        rank
        for rank in range(mesh.size)
        if not any(mesh.coordinates(rank)[a] for a in set(range(len(mesh.axes))) - {*cut})
    ]
    total = np.zeros(shape)
    for rank in here:
        _put(total, local[rank], layout, mesh, rank, library)
    return total


def _put(total: np.ndarray, local: np.ndarray, layout: Layout, mesh: Mesh, rank: int, library: Library) -> None:
    """Adds a device's local tensor at its positions. Fill elements outside of the tensor are skipped."""
    here = mesh.coordinates(rank)
    index = [positions_of(layout, dim, extent, mesh, here, library) for dim, extent in enumerate(total.shape)]
    inside = np.ix_(*(np.flatnonzero(positions >= 0) for positions in index))
    np.add.at(total, np.ix_(*(positions[positions >= 0] for positions in index)), local[inside])


def take(
    tensor: np.ndarray, layout: Layout, mesh: Mesh, here: tuple[int, ...], library: Library = LIBRARY
) -> np.ndarray:
    for dim, extent in enumerate(tensor.shape):
        index = positions_of(layout, dim, extent, mesh, here, library)
        tensor = np.where(
            np.expand_dims(index >= 0, tuple(d for d in range(tensor.ndim) if d != dim)), tensor.take(index, dim), 0.0
        )
    return tensor


def decode(held: Locals, layout: Layout, shape: tuple[int, ...], mesh: Mesh, library: Library = LIBRARY) -> np.ndarray:
    """The tensor that the local tensors represent. Asserts that copies agree."""
    total = np.full(shape, np.nan)
    copied = [axis for axis, kind in enumerate(layout.kinds) if isinstance(kind, Invariant | Replicate)]
    sums: dict[tuple[int, ...], np.ndarray] = {}
    for rank, local in enumerate(held):
        here = mesh.coordinates(rank)
        if not is_there(layout, here):
            continue
        copy = tuple(here[axis] for axis in copied)
        _put(sums.setdefault(copy, np.zeros(shape)), local, layout, mesh, rank, library)
    copies = _count(layout, shape, mesh, library) if layout.where(Window) else 1
    for value in (found / copies for found in sums.values()):
        assert np.isnan(total).all() or np.allclose(total, value), "copies differ"
        total = value
    return total


def run(
    steps: tuple[Step, ...], held: Locals, mesh: Mesh, shape: tuple[int, ...], library: Library = LIBRARY
) -> Locals:
    for step in steps:
        held = run_step(step, held, mesh, shape, library)
    return held


def run_step(step: Step, held: Locals, mesh: Mesh, shape: tuple[int, ...], library: Library = LIBRARY) -> Locals:
    if step.source is not None and step.target is not None:
        return run_transfers(step.source, step.target, held, mesh, shape, library)
    out: list[np.ndarray] = [np.empty(0)] * mesh.size
    for rank in range(mesh.size):
        group = group_of(rank, step.axes, mesh)
        out[rank] = _apply(step, held, group, group.index(rank))
    return out


def group_of(rank: int, axes: tuple[int, ...], mesh: Mesh) -> list[int]:
    here = list(mesh.coordinates(rank))
    group = []
    for choice in product(*(range(mesh.axes[axis].degree) for axis in axes)):
        for axis, coordinate in zip(axes, choice, strict=True):
            here[axis] = coordinate
        group.append(mesh.rank(here))
    return group


def _apply(step: Step, held: Locals, group: list[int], position: int) -> np.ndarray:
    local = held[group[position]]
    size = len(group)
    match step.kind:
        case StepKind.SLICE:
            return np.split(local, size, step.dim)[position]
        case StepKind.MASK:
            return local if position == step.member else np.zeros_like(local)
        case StepKind.PAD:
            blocks = [np.zeros_like(local)] * size
            blocks[position] = local
            return np.concatenate(blocks, step.dim)
        case StepKind.ALL_GATHER:
            return np.concatenate([held[member] for member in group], step.dim)
        case StepKind.ALL_REDUCE:
            return np.sum([held[member] for member in group], axis=0)
        case StepKind.REDUCE_SCATTER:
            return np.split(np.sum([held[member] for member in group], axis=0), size, step.dim)[position]
        case StepKind.ALL_TO_ALL:
            return np.concatenate([np.split(held[m], size, step.to_dim)[position] for m in group], step.dim)
    raise AssertionError(step)


def run_transfers(
    source: Layout, target: Layout, held: Locals, mesh: Mesh, shape: tuple[int, ...], library: Library = LIBRARY
) -> Locals:
    out = []
    for rank in range(mesh.size):
        here = mesh.coordinates(rank)
        local = tuple(len(positions_of(target, dim, extent, mesh, here, library)) for dim, extent in enumerate(shape))
        out.append(np.zeros(local))
    for transfer in transfers(source, target, shape, mesh, library):
        out[transfer.taker][np.ix_(*transfer.put_at)] += held[transfer.giver][np.ix_(*transfer.taken_from)]
    return out


def layouts(rank: int, mesh: Mesh) -> list[Layout]:
    """Every layout, in mesh order."""
    kinds = (Invariant(), Replicate(), Partial(), *(Shard(dim) for dim in range(rank)))
    return [nest(choice) for choice in product(kinds, repeat=len(mesh.axes))]
