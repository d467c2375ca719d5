"""Storage of weights as those systems have it that gather none: a device keeps what its operators read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...graph.graph import Node, Value
from ...graph.layout import Invariant, Layout, Mesh
from ..choices.layout_space import Space
from ..choices.operator_options import Options
from ..cost_network.bucket_elimination import Table

FORBIDDEN = 1e5
"""Seconds of what must not be: more than any step takes, and finite, so that a solver may subtract it."""


class KeptAsRead:
    """Forbids that a weight is kept in slices along a mesh axis along which it is read in other ones, or whole.

    A charge of a problem, as a price of memory is.
    """

    def of_operator(self, node: Node, prefix: str, options: Options, mesh: Mesh) -> Table:
        """Nothing."""
        return np.zeros(len(options.typed))

    def of_stored(self, value: Value) -> float:
        """Nothing."""
        return 0.0

    def with_copies(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """Of a weight, those that gather nothing."""
        return self.with_gathers(seconds, value, prefix, space) if value.is_weight else seconds

    def with_gathers(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """Forbidden from slices to what is not the same slices."""
        axes = range(len(space.prices.mesh.axes))
        kept = [[is_kept(stored, read, axes) for read in space.layouts] for stored in space.layouts]
        return np.where(np.array(kept, dtype=bool), seconds, FORBIDDEN)


def is_kept(stored: Layout, read: Layout, axes: Iterable[int]) -> bool:
    """Whether a device that stores a tensor so gathers nothing along these mesh axes to read it so."""
    return all(isinstance(stored.kinds[axis], Invariant) or stored.kinds[axis] == read.kinds[axis] for axis in axes)
