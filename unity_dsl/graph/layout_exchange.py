"""How much travels in the generic exchange between two layouts at concrete sizes.

Per mesh axis a layout is a declared parallel op: an encoder whose elements are copies of the tensor's (replicate,
partition, a user's own), or the decoder that sums (reduce, and the transpose of an encoder whose slices overlap).
Composing one layout's inverse with another's map gives, for every pair of devices, which positions travel: that is the
generic lowering of any conversion, which the emitted program plans for itself. Elements of an encoder are copies, so
the nearest holder gives. Along a Partial axis that changes, and of an Overlap, all devices give their terms. A value
that becomes terms along an axis is put down once: it stays with its holder, or is with the first device.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product

import numpy as np

from ..index.library import Library
from .declared_slices import Indices, positions_of
from .layout import Cut, Invariant, Kind, Layout, Mesh, MeshAxis, Overlap, Partial, Replicate


@dataclass(frozen=True)
class _Pair:
    """One dimension of a conversion: which of the devices that hold an element gives it, and which one takes it."""

    source: Layout
    target: Layout
    dim: int
    extent: int
    mesh: Mesh
    library: Library
    _held: dict[object, Indices] = field(default_factory=dict, compare=False, repr=False)

    def gives(self, here: tuple[int, ...], there: tuple[int, ...]) -> Indices:
        """Per element whether the device at `there` is the one that gives it to the one at `here`.

        All devices give their terms. Of copies the nearest is given; along an axis that becomes Partial, where nobody
        else may give the element once more, the first.
        """
        axes = self.source.nesting(self.dim)
        if any(isinstance(self.source.kinds[axis], Overlap) for axis in axes):
            return np.ones(self.extent, dtype=bool)
        fixed = [axis for axis in axes if isinstance(self.target.kinds[axis], Partial)]
        order = sorted(
            self._choices(axes, here),
            key=lambda place: ([place[axis] for axis in fixed], sum(place[axis] != here[axis] for axis in axes)),
        )
        return np.asarray(self._first(self.source, order) == order.index(self._at(axes, here, there)))

    def takes(self, here: tuple[int, ...], there: tuple[int, ...]) -> Indices:
        """Per element whether the device at `here` is the one that takes what the one at `there` gives.

        Every device has copies. Of the devices that may hold a term the one that has it already takes it, else the
        first.
        """
        axes = self.target.nesting(self.dim)
        if not any(isinstance(self.target.kinds[axis], Overlap) for axis in axes):
            return np.ones(self.extent, dtype=bool)
        own = self._at(axes, here, here)
        order = self._choices(axes, here)
        terms = [axis for axis in axes if isinstance(self.source.kinds[axis], Overlap)]
        if terms:
            order = sorted(order, key=lambda place: sum(place[axis] != there[axis] for axis in terms))
            return np.asarray(self._first(self.target, order) == order.index(own))
        homes = [self._holds(self.source, place) & self._holds(self.target, place) for place in order]
        first = np.where(np.any(homes, axis=0), np.argmax(homes, axis=0), self._first(self.target, order))
        return np.asarray(first == order.index(own))

    def count(self, here: tuple[int, ...]) -> tuple[int, int]:
        """How many elements the device at `here` takes, once per giver, and how many of these are its own."""
        wanted = self._holds(self.target, here)
        axes = self.source.nesting(self.dim)
        places = self._choices(axes, here)
        stays = [axis for axis in axes if isinstance(self.target.kinds[axis], Partial)]
        givers = [place for place in places if all(place[axis] == here[axis] for axis in stays)]
        if any(isinstance(self.source.kinds[axis], Overlap) for axis in axes):
            found = {g: wanted & self._holds(self.source, g) & self.takes(here, g) for g in givers}
            return sum(int(part.sum()) for part in found.values()), int(found[here].sum())
        wanted = wanted & self.takes(here, here)
        own = int((wanted & self.gives(here, here)).sum())
        if not stays:
            return int((wanted & (self._first(self.source, places) >= 0)).sum()), own
        return sum(int((wanted & self.gives(here, giver)).sum()) for giver in givers), own

    def _choices(self, axes: tuple[int, ...], here: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Every place that differs from `here` along these axes only."""
        found = product(*(range(self.mesh.axes[axis].degree) for axis in axes))
        return [self._with(here, dict(zip(axes, choice, strict=True))) for choice in found]

    def _at(self, axes: tuple[int, ...], here: tuple[int, ...], there: tuple[int, ...]) -> tuple[int, ...]:
        return self._with(here, {axis: there[axis] for axis in axes})

    def _with(self, here: tuple[int, ...], places: dict[int, int]) -> tuple[int, ...]:
        return tuple(places.get(axis, coordinate) for axis, coordinate in enumerate(here))

    def _first(self, layout: Layout, order: list[tuple[int, ...]]) -> Indices:
        """Per element the number of the first place that holds it, -1 where none does."""
        holds = [self._holds(layout, place) for place in order]
        return np.where(np.any(holds, axis=0), np.argmax(holds, axis=0), -1)

    def _holds(self, layout: Layout, place: tuple[int, ...]) -> Indices:
        key = layout, *(place[axis] for axis in layout.nesting(self.dim))
        if key not in self._held:
            held = positions_of(layout, self.dim, self.extent, self.mesh, place, self.library)
            self._held[key] = np.zeros(self.extent, dtype=bool)
            self._held[key][held[held >= 0]] = True
        return self._held[key]


@dataclass
class Received:
    """How much conversions move, by their transfers: what any layouts cost, those of a user's own ops included."""

    mesh: Mesh
    library: Library
    _found: dict[object, float] = field(default_factory=dict)

    def fraction(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> float:
        """The most elements that any device receives from others, as a fraction of the whole tensor.

        It does not depend on the extents of dimensions that neither layout cuts.
        """
        dims = sorted({kind.dim for kind in (*source.kinds, *target.kinds) if isinstance(kind, Cut)})
        extents = tuple((dim, shape[dim]) for dim in dims)
        key = source, target, extents
        if key not in self._found:
            self._found[key] = self._fraction(source, target, extents)
        return self._found[key]

    def _fraction(self, source: Layout, target: Layout, extents: tuple[tuple[int, int], ...]) -> float:
        """Of a value that becomes Partial from copies, the first device of the axis keeps it, others get nothing."""
        pairs = list(enumerate(zip(source.kinds, target.kinds, strict=True)))
        terms = self.mesh.degree(
            axis for axis, (before, after) in pairs if isinstance(before, Partial) and not isinstance(after, Partial)
        )
        everything, own = np.full((1,) * len(pairs), float(terms)), np.ones((1,) * len(pairs))
        for dim, extent in extents:
            taken, kept = self._dimension(source, target, dim, extent)
            everything = everything * (taken / extent)
            own = own * (kept / extent)
        received = everything - own
        for axis, (before, after) in pairs:
            if isinstance(after, Partial) and isinstance(before, Invariant | Replicate):
                received = received.take([0], axis=axis)
        return float(received.max())

    def _dimension(self, source: Layout, target: Layout, dim: int, extent: int) -> Indices:
        """How many positions each device takes, counted once per giver, and how many of its own. Shape [2, degrees],
        with 1 for mesh axes that do not cut the dimension.
        """
        axes = {*source.nesting(dim), *target.nesting(dim)}
        seen = (_seen(source.kinds[axis], target.kinds[axis], dim) for axis in sorted(axes))
        degrees = [axis.degree if number in axes else 1 for number, axis in enumerate(self.mesh.axes)]
        cuts = tuple((self.mesh.axes[axis].degree, *kinds) for axis, kinds in zip(sorted(axes), seen, strict=True))
        return _counted(extent, cuts, self.library).reshape(2, *degrees)


def _seen(before: Kind, after: Kind, dim: int) -> tuple[Kind, Kind]:
    """What of two kinds along a mesh axis matters to one dimension, as if it were the first one."""
    here, there = (isinstance(kind, Cut) and kind.dim == dim for kind in (before, after))
    source = replace(before, dim=0) if here and isinstance(before, Cut) else Invariant()
    if there and isinstance(after, Cut):
        return source, replace(after, dim=0)
    return source, after if here and isinstance(after, Partial) else Invariant()


@lru_cache(maxsize=1 << 14)
def _counted(extent: int, cuts: tuple[tuple[int, Kind, Kind], ...], library: Library) -> Indices:
    """How many positions of a dimension each device takes, counted once per giver, and how many of its own: of the mesh
    axes that cut it, given as degree and the kinds before and after. Shape [2, devices].
    """
    mesh = Mesh(tuple(MeshAxis("", degree) for degree, _, _ in cuts))
    source, target = (Layout(kinds) for kinds in list(zip(*cuts, strict=True))[1:])
    pair = _Pair(source, target, 0, extent, mesh, library)
    return np.array([pair.count(mesh.coordinates(rank)) for rank in range(mesh.size)], dtype=float).T
