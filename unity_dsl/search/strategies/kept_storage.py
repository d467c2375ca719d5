"""Weight storage of systems that gather no weights: a device stores what its operators read."""

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
"""Seconds charged for a forbidden conversion: more than any step, but finite, so that a solver may subtract it."""


class KeptAsRead:
    """Forbids storing a weight in slices along a mesh axis along which it is read whole or in other slices.

    It is charged in a problem like a price of memory.
    """

    def of_operator(self, node: Node, prefix: str, options: Options, mesh: Mesh) -> Table:
        """No charge."""
        return np.zeros(len(options.typed))

    def of_stored(self, value: Value) -> float:
        """No charge."""
        return 0.0

    def with_copies(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """For a weight, forbids conversions that gather."""
        return self.with_gathers(seconds, value, prefix, space) if value.is_weight else seconds

    def with_gathers(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """Forbids conversions from slices to anything but the same slices."""
        return np.where(kept(space.layouts, range(len(space.prices.mesh.axes))), seconds, FORBIDDEN)


def kept(layouts: Sequence[Layout], axes: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Whether a device that stores a tensor in one layout gathers nothing along these mesh axes to read it in another
    layout. Shape [layouts, layouts].
    """
    numbers: dict[Kind, int] = {Invariant(): 0}
    found = np.ones((len(layouts), len(layouts)), dtype=bool)
    for axis in axes:
        kinds = np.array([numbers.setdefault(layout.kinds[axis], len(numbers)) for layout in layouts], dtype=np.intp)
        found &= (kinds == 0)[:, None] | (kinds[:, None] == kinds)
    return found


class SlicedAlong(KeptAsRead):
    """Storage in slices along some mesh axes if these divide the weight, and as it is read along the others."""

    def __init__(self, axes: Iterable[int]) -> None:
        self.axes = frozenset(axes)

    def with_gathers(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """Forbids storage along fewer of these mesh axes than possible, and gathers along the others."""
        own = [axis for axis in range(len(space.prices.mesh.axes)) if axis not in self.axes]
        slices = np.array([len(self.axes.intersection(layout.where(Shard))) for layout in space.layouts])
        most = max((slices[number] for number in space.storable), default=0)
        allowed = (slices >= most)[:, None] & kept(space.layouts, own)
        return np.where(allowed, seconds, FORBIDDEN)
