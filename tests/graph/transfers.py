"""Which positions each device sends to each other one in a conversion. The oracle of the tests.

Per mesh axis, a layout is a declared parallel op. An encoder (replicate, partition, a user's own) has elements that are
copies of the tensor's. The decoder (reduce, and the transpose of an encoder with overlapping slices) sums. Composing
one layout's inverse with another's map gives the positions that are sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from unity_dsl.graph.declared_slices import positions_of
from unity_dsl.graph.layout import Invariant, Layout, Mesh, Overlap, Partial, Replicate
from unity_dsl.index.library import Library

Place = tuple[int, ...]
"""A device's coordinates along the mesh axes."""


@dataclass(frozen=True)
class Transfer:
    """What one device sends to another: per dimension, positions in the giver's tensor and in the taker's.

    A taker sums what it gets from several givers. Positions that nobody gives are zero.
    """

    giver: int
    taker: int
    taken_from: tuple[tuple[int, ...], ...]
    put_at: tuple[tuple[int, ...], ...]

    @property
    def elements(self) -> int:
        return prod(len(positions) for positions in self.put_at)


def transfers(source: Layout, target: Layout, shape: tuple[int, ...], mesh: Mesh, library: Library) -> list[Transfer]:
    """The composed index map, ordered by taker, then giver.

    Elements of an encoder are copies, so the nearest holder gives: the taker itself if it holds the element, else the
    holder that differs from it in the fewest coordinates of the cut axes. Along an Overlap axis, or a Partial axis that
    changes, all devices give their terms. A value that becomes terms along an axis is placed once: it stays with its
    holder, or goes to the first device.
    """
    dims = [_Dimension(source, target, dim, extent, mesh, library) for dim, extent in enumerate(shape)]
    return list(_found(dims, source, target, mesh))


def _found(dims: Sequence[_Dimension], source: Layout, target: Layout, mesh: Mesh) -> Iterator[Transfer]:
    for taker, giver in product(range(mesh.size), repeat=2):
        here, there = mesh.coordinates(taker), mesh.coordinates(giver)
        if all(_meet(*along) for along in zip(source.kinds, target.kinds, here, there, strict=True)):
            pairs = [dim.pair(here, there) for dim in dims]
            if all(taken for taken, _ in pairs):
                yield Transfer(giver, taker, tuple(taken for taken, _ in pairs), tuple(put for _, put in pairs))


def _meet(before: object, after: object, here: int, there: int) -> bool:
    """Whether a device at coordinate `here` of a mesh axis may take anything from one at `there`."""
    if isinstance(before, Invariant | Replicate):
        return here == there and not (isinstance(after, Partial) and here > 0)
    return here == there or not isinstance(after, Partial)


class _Dimension:
    """One dimension: which holder of an element gives it, and which device takes it."""

    def __init__(self, source: Layout, target: Layout, dim: int, extent: int, mesh: Mesh, library: Library) -> None:
        self.mesh, self.extent = mesh, extent
        self.before, self.after = source.nesting(dim), target.nesting(dim)
        self.terms = any(isinstance(source.kinds[axis], Overlap) for axis in self.before)
        self.put_down = any(isinstance(target.kinds[axis], Overlap) for axis in self.after)
        self.fixed = [axis for axis in self.before if isinstance(target.kinds[axis], Partial)]
        self.from_terms = [axis for axis in self.after if isinstance(source.kinds[axis], Overlap)]
        every = [mesh.coordinates(rank) for rank in range(mesh.size)]
        self.held, self.wanted = (
            {place: positions_of(layout, dim, extent, mesh, place, library).tolist() for place in every}
            for layout in (source, target)
        )
        self.holds, self.wants = (
            {place: set(found) - {-1} for place, found in positions.items()} for positions in (self.held, self.wanted)
        )

    def pair(self, here: Place, there: Place) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The giver's positions, and the taker's positions."""
        common = self.wants[here] & self.holds[there]
        common = {element for element in common if self._gives(element, here, there)} if not self.terms else common
        common = {element for element in common if self._takes(element, here, there)} if self.put_down else common
        put = [position for position, element in enumerate(self.wanted[here]) if element in common]
        return tuple(self.held[there].index(self.wanted[here][position]) for position in put), tuple(put)

    def _gives(self, element: int, here: Place, there: Place) -> bool:
        """Whether `there` gives the element: the holder nearest to the taker, or, along axes that become terms, the
        first one.
        """

        def order(place: Place) -> tuple[list[int], int]:
            return [place[axis] for axis in self.fixed], sum(place[axis] != here[axis] for axis in self.before)

        nearest = min((place for place in self._beside(here, self.before) if element in self.holds[place]), key=order)
        return nearest == tuple(there[axis] if axis in self.before else own for axis, own in enumerate(here))

    def _takes(self, element: int, here: Place, there: Place) -> bool:
        """Whether `here` takes the term: the device that already has it, or the one nearest to the giver."""
        may = [place for place in self._beside(here, self.after) if element in self.wants[place]]
        if self.from_terms:
            return here == min(may, key=lambda place: sum(place[axis] != there[axis] for axis in self.from_terms))
        return here == min(may, key=lambda place: element not in self.holds[place])

    def _beside(self, here: Place, axes: Sequence[int]) -> Iterator[Place]:
        """Every place that differs from `here` along these axes only; the first axis is the major one."""
        for choice in product(*(range(self.mesh.axes[axis].degree) for axis in axes)):
            places = dict(zip(axes, choice, strict=True))
            yield tuple(places.get(axis, coordinate) for axis, coordinate in enumerate(here))
