"""Storage of weights as those systems have it that gather none: a device keeps what its operators read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ...graph.graph import Node, Value
from ...graph.layout import Invariant, Kind, Layout, Mesh, Shard
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
        return np.where(kept(space.layouts, range(len(space.prices.mesh.axes))), seconds, FORBIDDEN)


def kept(layouts: Sequence[Layout], axes: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Whether a device that stores a tensor in one layout gathers nothing along these mesh axes to read it in another.
    Shape [layouts, layouts].
    """
    numbers: dict[Kind, int] = {Invariant(): 0}
    found = np.ones((len(layouts), len(layouts)), dtype=bool)
    for axis in axes:
        kinds = np.array([numbers.setdefault(layout.kinds[axis], len(numbers)) for layout in layouts], dtype=np.intp)
        found &= (kinds == 0)[:, None] | (kinds[:, None] == kinds)
    return found


class SlicedAlong(KeptAsRead):
    """Storage in slices along some mesh axes wherever these divide a weight, and as it is read along the others."""

    def __init__(self, axes: Iterable[int]) -> None:
        self.axes = frozenset(axes)

    def with_gathers(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """Forbidden from storage in fewer slices than there may be."""
        own = [axis for axis in range(len(space.prices.mesh.axes)) if axis not in self.axes]
        slices = np.array([len(self.axes.intersection(layout.where(Shard))) for layout in space.layouts])
        most = max((slices[number] for number in space.storable), default=0)
        allowed = (slices >= most)[:, None] & kept(space.layouts, own)
        return np.where(allowed, seconds, FORBIDDEN)
