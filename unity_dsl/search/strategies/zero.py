"""Strategy `zero`: data parallelism with every weight in slices, ZeRO stage 3 (Rajbhandari et al., SC 2020) as in FSDP
(Zhao et al., VLDB 2023).

Operators read whole weights, which are gathered when needed, forward and backward. Gradients are reduce-scattered to
slices, and each device updates its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...graph.graph import Model, Value
from ...graph.layout import Invariant, Layout, Mesh, Shard, nest
from ...index.library import Library
from ..choices.restriction import Restriction, places
from .data_parallel import data_parallel


def zero(model: Model, mesh: Mesh, library: Library) -> Restriction:
    """The batch divided over all devices, weights stored in slices and gathered where they are read.

    A weight is sharded along the dimension that divides into the most slices, the first such dimension. Raises E309 as
    `data_parallel`.
    """
    return in_slices(data_parallel(model, mesh, library), model, mesh)


def in_slices(restriction: Restriction, model: Model, mesh: Mesh) -> Restriction:
    """The restriction, with every trained weight stored in slices."""
    trained = {place.path: place.value for place in places(model) if place.stored and place.value.needs_gradient}
    return replace(restriction, storage={**restriction.storage, **{p: sliced(v, mesh) for p, v in trained.items()}})


def sliced(value: Value, mesh: Mesh, axes: Sequence[int] | None = None) -> Layout:
    """The storage layout of a weight: as many equal slices as possible along one dimension, the first such dimension.

    Among the mesh `axes`, by default all, those with fast links are taken first.
    """
    best: list[int] = []
    place = 0
    for dim, size in enumerate(value.shape):
        cut: list[int] = []
        for axis in reversed(range(len(mesh.axes)) if axes is None else axes):
            if size % mesh.degree((*cut, axis)) == 0:
                cut.append(axis)
        if mesh.degree(cut) > mesh.degree(best):
            best, place = cut, dim
    return nest([Shard(place) if axis in best else Invariant() for axis in range(len(mesh.axes))])
