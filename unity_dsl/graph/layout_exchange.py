"""How much the generic exchange between two layouts transfers at concrete sizes.

Per mesh axis a layout is a declared parallel op. It is an encoder whose elements are copies of the tensor's (replicate,
partition, a user's own), or the decoder that sums (reduce, and the transpose of an encoder whose slices overlap).
Composing one layout's inverse with another's map gives the positions that each pair of devices transfers. This is the
generic lowering of any conversion, which the emitted program plans for itself. Elements of an encoder are copies, so
the nearest holder sends them. All devices send their terms along a Partial axis that changes, and of an Overlap. A
value that becomes terms along an axis is placed once: it stays with its holder, or is with the first device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from ..index.library import Library
from .declared_slices import Indices, positions_of
from .layout import PARTITION, Cut, Invariant, Kind, Layout, Mesh, MeshAxis, Overlap, Partial, Replicate
from .layout_codes import Fractions, Numbers


@dataclass(frozen=True)
class _Pair:
    """One dimension of a conversion: which of the devices that hold an element sends it, and which one takes it."""

    source: Layout
    target: Layout
    dim: int
    extent: int
    mesh: Mesh
    library: Library
    _held: dict[object, Indices] = field(default_factory=dict, compare=False, repr=False)

    def gives(self, here: tuple[int, ...], there: tuple[int, ...]) -> Indices:
        """For each element, whether the device at `there` sends it to the device at `here`.

        All devices send their terms. The nearest copy is sent, except along an axis that becomes Partial: only the
        first holder sends there, since the element must not be sent twice.
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
        """For each element, whether the device at `here` takes what the device at `there` sends.

        Every device takes copies. A term is taken by the device that has it already, else by the first one that may
        hold it.
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
        """How many elements the device at `here` takes, once per sender, and how many of these are its own."""
        wanted = self._holds(self.target, here)
        if self._of_copies:  # any holder sends a copy; a device takes what it has from itself
            return int((wanted & self._covered).sum()), int((wanted & self._holds(self.source, here)).sum())
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

    @cached_property
    def _of_copies(self) -> bool:
        """Whether devices hold only copies, before and after, so that any holder may send an element."""
        own = [kinds.kinds[axis] for kinds in (self.source, self.target) for axis in kinds.nesting(self.dim)]
        becomes = [self.target.kinds[axis] for axis in self.source.nesting(self.dim)]
        return not any(isinstance(kind, Overlap) for kind in own) and not any(isinstance(k, Partial) for k in becomes)

    @cached_property
    def _covered(self) -> Indices:
        """For each element, whether some device has it before the conversion."""
        places = self._choices(self.source.nesting(self.dim), (0,) * len(self.mesh.axes))
        return np.asarray(self._first(self.source, places) >= 0)

    def _choices(self, axes: tuple[int, ...], here: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Every place that differs from `here` along these axes only."""
        found = product(*(range(self.mesh.axes[axis].degree) for axis in axes))
        return [self._with(here, dict(zip(axes, choice, strict=True))) for choice in found]

    def _at(self, axes: tuple[int, ...], here: tuple[int, ...], there: tuple[int, ...]) -> tuple[int, ...]:
        return self._with(here, {axis: there[axis] for axis in axes})

    def _with(self, here: tuple[int, ...], places: dict[int, int]) -> tuple[int, ...]:
        return tuple(places.get(axis, coordinate) for axis, coordinate in enumerate(here))

    def _first(self, layout: Layout, order: list[tuple[int, ...]]) -> Indices:
        """For each element, the number of the first place that holds it, -1 if none does."""
        holds = [self._holds(layout, place) for place in order]
        return np.where(np.any(holds, axis=0), np.argmax(holds, axis=0), -1)

    def _holds(self, layout: Layout, place: tuple[int, ...]) -> Indices:
        key = layout, *(place[axis] for axis in layout.nesting(self.dim))
        if key not in self._held:
            held = positions_of(layout, self.dim, self.extent, self.mesh, place, self.library)
            self._held[key] = np.zeros(self.extent, dtype=bool)
            self._held[key][held[held >= 0]] = True
        return self._held[key]


@dataclass(frozen=True)
class Received:
    """How much conversions between any layouts transfer, those of user-declared ops included."""

    mesh: Mesh
    library: Library

    def fraction(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> float:
        """The most elements that any device receives from others, as a fraction of the whole tensor."""
        return float(self.fractions([source, target], np.array([0]), np.array([1]), shape)[1][0])

    def fractions(
        self,
        layouts: Sequence[Layout],
        sources: Numbers,
        targets: Numbers,
        shape: tuple[int, ...],
        *,
        evenly: bool = False,
    ) -> tuple[Numbers, Fractions]:
        """For conversions of a tensor between pairs of these layouts, given by their positions: the mesh axes that
        change, as a bit set, and the most that any device receives from others, as a fraction of the whole tensor.

        With `evenly`, dimensions that only unchanged mesh axes cut are taken to be cut evenly. If copies become
        Partial, only the first device of the axis receives anything.
        """
        kinds: dict[Kind, int] = {}
        codes = np.array([[kinds.setdefault(kind, len(kinds)) for kind in layout.kinds] for layout in layouts])
        before, after = codes[sources], codes[targets]
        partial = np.array([isinstance(kind, Partial) for kind in kinds])
        copies = np.array([isinstance(kind, Invariant | Replicate) for kind in kinds])
        dims = np.array([kind.dim if isinstance(kind, Cut) else -1 for kind in kinds])
        changed, degrees = before != after, np.array(self.mesh.degrees)
        terms = np.where(partial[before] & changed, degrees, 1).prod(axis=1)
        everything, own = np.tile(terms[:, None].astype(float), self.mesh.size), np.ones((len(before), self.mesh.size))
        parts = np.ones(len(before), dtype=np.int64)
        for dim in np.unique(dims[dims >= 0]).tolist():
            here, there = dims[before] == dim, dims[after] == dim
            touched = ((changed | (not evenly)) & (here | there)).any(axis=1)
            parts *= np.where(here & ~touched[:, None], degrees, 1).prod(axis=1)
            matters = np.hstack([np.where(here, before, -1), np.where(there | (here & partial[after]), after, -1)])
            rows, number = np.unique(matters[touched], axis=0, return_inverse=True)
            counted = np.array([self._dimension(row, list(kinds), dim, shape[dim]) for row in rows])
            if len(counted):
                shares = counted[number.ravel()] / shape[dim]
                everything[touched] *= shares[:, 0]
                own[touched] *= shares[:, 1]
        later = np.indices(self.mesh.degrees).reshape(len(degrees), -1) > 0
        received = np.where((partial[after] & copies[before]) @ later, 0.0, everything - own).max(axis=1)
        return changed @ (1 << np.arange(len(degrees))), received * (1 / parts)

    def _dimension(self, seen: Sequence[int], kinds: Sequence[Kind], dim: int, extent: int) -> Indices:
        """How many positions each device takes, counted once per sender, and how many of its own. Shape [2, devices].

        `seen` are the kinds before, then the kinds after, along all mesh axes; -1 if one does not matter.
        """
        here, there = np.reshape(seen, (2, -1)).tolist()
        cuts, degrees = [], []
        for axis, before, after in zip(self.mesh.axes, here, there, strict=True):
            degrees.append(axis.degree if before >= 0 or after >= 0 else 1)
            if before >= 0 or after >= 0:
                cuts.append((axis.degree, *(_of_first(kinds[k]) if k >= 0 else Invariant() for k in (before, after))))
        counted = _counted(extent, tuple(cuts), self.library).reshape(2, *degrees)
        return np.broadcast_to(counted, (2, *self.mesh.degrees)).reshape(2, -1)


def _of_first(kind: Kind) -> Kind:
    """The same kind for dimension 0."""
    return replace(kind, dim=0) if isinstance(kind, Cut) else kind


@lru_cache(maxsize=1 << 14)
def _counted(extent: int, cuts: tuple[tuple[int, Kind, Kind], ...], library: Library) -> Indices:
    """How many positions of a dimension each device takes, counted once per sender, and how many of its own. `cuts` are
    the degree and the kinds before and after of each mesh axis that cuts the dimension. Shape [2, devices].
    """
    mesh = Mesh(tuple(MeshAxis("", degree) for degree, _, _ in cuts))
    source, target = (Layout(kinds) for kinds in list(zip(*cuts, strict=True))[1:])
    block = _block(extent, mesh, (source, target))
    pair = _Pair(source, target, 0, extent // block, mesh, library)
    return block * np.array([pair.count(mesh.coordinates(rank)) for rank in range(mesh.size)], dtype=float).T


def _block(extent: int, mesh: Mesh, layouts: Iterable[Layout]) -> int:
    """The length of blocks that no slice divides, if all slices are equal and contiguous; otherwise 1. Long dimensions
    are counted by blocks: each device's positions would be listed once for every other device.
    """
    partitions = all(getattr(kind, "by", PARTITION) == PARTITION for layout in layouts for kind in layout.kinds)
    return extent // mesh.size if partitions and extent % mesh.size == 0 else 1
