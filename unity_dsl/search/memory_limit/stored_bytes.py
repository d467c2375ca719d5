"""A lower bound on the memory of a device for the weights, with their gradients and moments, however they are divided.

A dimension is cut by whole mesh axes whose sizes, multiplied, divide it. For example, 8192 rows are cut into 16 parts
at most on 10,000 devices, on any mesh. A mesh on which this bound exceeds the memory of a device need not be searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from ...graph.graph import Model
from ...graph.layout import At, Kind, Mesh
from ...machine.mesh import prime_factors
from ...machine.operator_price import MOMENTS

HELD_TRAINED = 2 + MOMENTS
"""Copies of a trained parameter: itself, its gradient and the optimizer's moments."""


@dataclass(frozen=True)
class StoredBytes:
    """The bytes of a model's weights, with what training keeps of them, by shape. With `evenly`, every weight is taken
    to be divided over all devices.
    """

    by_shape: Mapping[tuple[int, ...], int]
    evenly: bool = False

    @staticmethod
    def of(model: Model, pins: Iterable[Sequence[Kind]] = ()) -> StoredBytes:
        """The stored bytes of a model. They count as divided `evenly` if a pin puts something on one coordinate of a
        mesh axis: other devices may be without its weights.
        """
        found: Counter[tuple[int, ...]] = Counter()
        for value in (weight.value for _, weight in model.weights()):
            found[value.shape] += value.stored_bytes * (HELD_TRAINED if value.needs_gradient else 1)
        return StoredBytes(found, any(isinstance(kind, At) for pin in pins for kind in pin))

    def least(self, mesh: Mesh) -> float:
        """Lower bound on the stored bytes of a device of a mesh, over all plans of the model."""
        return self._least(mesh.degrees)

    def with_room(self, meshes: Iterable[Mesh], limit: float) -> list[Mesh]:
        """The meshes on which the weights fit within a limit of bytes on a device."""
        return [mesh for mesh in meshes if self.least(mesh) <= limit]

    def least_on_any(self, devices: int) -> float:
        """The same over all meshes of so many devices: the axes of each can be split into prime factors."""
        return self._least(tuple(prime_factors(devices)))

    def _least(self, degrees: tuple[int, ...]) -> float:
        size = prod(degrees)
        return sum(
            count / (size if self.evenly else most_parts(tuple(gcd(extent, size) for extent in shape), degrees))
            for shape, count in self.by_shape.items()
        )


@lru_cache(maxsize=1 << 14)
def most_parts(extents: tuple[int, ...], degrees: tuple[int, ...]) -> int:
    """The most parts into which axes of these sizes cut a tensor, each axis along one dimension or none."""
    if not degrees:
        return 1
    first, others = degrees[0], degrees[1:]
    found = most_parts(extents, others)
    for extent in set(extents):
        if extent % first == 0:
            left = [*extents, extent // first]
            left.remove(extent)
            found = max(found, first * most_parts(tuple(sorted(left)), others))
    return found
