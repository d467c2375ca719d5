"""Layouts: how a mesh holds a tensor, per mesh axis, for its value and its gradient.

| kind      | value                                   | gradient  |
|-----------|-----------------------------------------|-----------|
| Invariant | one logical tensor, the axis is absent  | Invariant |
| Replicate | a copy per device, each used by itself  | Partial   |
| Partial   | a term of a sum per device              | Replicate |
| Shard     | a slice of one dimension per device     | Shard     |
| Window    | slices that overlap: copies of elements | Overlap   |
| Overlap   | slices that overlap: terms of elements  | Window    |
| At        | one logical tensor, on some devices     | At        |

A declared parallel op cuts the slices. The gradient's layout is the transpose of the value's, so the backward of a
conversion is the conversion between the transposed layouts, in the other direction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

from ..cached_hash import cached_hash


@dataclass(frozen=True, order=True)
class MeshAxis:
    """One axis of the device mesh. `level` is the slowest link its groups cross: 0 inside a node, 1 between nodes."""

    name: str
    degree: int
    level: int = 0


Placement = tuple[tuple[int, int], ...]
"""The devices that hold or compute something, by mesh axis and coordinate; all devices if it is empty."""


@dataclass(frozen=True)
class Mesh:
    """The devices as a grid, first axis outermost (its neighbours are furthest apart)."""

    axes: tuple[MeshAxis, ...]

    @cached_property
    def size(self) -> int:
        return prod(self.degrees)

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        return tuple(axis.degree for axis in self.axes)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """The position of a rank along each axis."""
        position = []
        for axis in reversed(self.axes):
            rank, coordinate = divmod(rank, axis.degree)
            position.append(coordinate)
        return tuple(reversed(position))

    def rank(self, coordinates: Iterable[int]) -> int:
        rank = 0
        for axis, coordinate in zip(self.axes, coordinates, strict=True):
            rank = rank * axis.degree + coordinate
        return rank

    def degree(self, axes: Iterable[int]) -> int:
        """Number of devices in a group that spans these mesh axes (given by position)."""
        return prod([self.degrees[axis] for axis in axes])

    def share(self, placement: Placement) -> float:
        """The fraction of all devices that has these coordinates."""
        return 1 / self.degree(axis for axis, _ in placement)


@dataclass(frozen=True, order=True)
class Invariant:
    """The same on every device, as one logical computation, as if the mesh axis were absent."""

    def __str__(self) -> str:
        return "I"

    def __hash__(self) -> int:
        return 1  # kinds without fields would all have one hash, and layouts collide


@dataclass(frozen=True, order=True)
class Replicate:
    """A copy on every device, each used by itself: their gradients are summed."""

    def __str__(self) -> str:
        return "R"

    def __hash__(self) -> int:
        return 2


@dataclass(frozen=True, order=True)
class Partial:
    """A term of a sum on every device."""

    def __str__(self) -> str:
        return "P"

    def __hash__(self) -> int:
        return 3


@dataclass(frozen=True, order=True)
class At:
    """One logical tensor on the devices that have this coordinate along the axis; the others hold nothing.

    As an index map it is the decoder `x[…] = y[@p = coordinate, …]`: a sum whose other terms are all zero.
    """

    coordinate: int

    def __str__(self) -> str:
        return f"@{self.coordinate}"


PARTITION = "partition"
"""The declared op that cuts contiguous blocks: the default if no other op is named."""

Attributes = tuple[tuple[str, int], ...]
"""Values of a declared parallel op's own attributes, by name."""


@dataclass(frozen=True, order=True)
class Shard:
    """Slices of dimension `dim`. `place` nests several mesh axes on one dimension, 0 the major one.

    `by` names the declared parallel op that cuts the slices; `partition` cuts contiguous blocks.
    """

    dim: int
    place: int = 0
    by: str = PARTITION
    attributes: Attributes = ()

    def __str__(self) -> str:
        return f"S{self.dim}" if self.by == PARTITION else _written(self.by, self.dim, self.attributes)


@dataclass(frozen=True, order=True)
class Window:
    """Slices of dimension `dim` that may overlap and reach beyond it, where they are 0. Every element is a copy.

    All mesh axes that cut the dimension are one device axis of the declared op; `place` 0 is the major one. No other
    axis cuts that dimension.
    """

    dim: int
    place: int = 0
    by: str = ""
    attributes: Attributes = ()

    def __str__(self) -> str:
        return _written(self.by, self.dim, self.attributes)


@dataclass(frozen=True, order=True)
class Overlap:
    """The transpose of a Window: an element is the sum of what all devices hold at its position."""

    dim: int
    place: int = 0
    by: str = ""
    attributes: Attributes = ()

    def __str__(self) -> str:
        return f"sum {_written(self.by, self.dim, self.attributes)}"


def _written(by: str, dim: int, attributes: Attributes) -> str:
    return f"{by}({'; '.join([str(dim), *(f'{name}={value}' for name, value in attributes)])})"


Cut = Shard | Window | Overlap
"""Kinds that hold a part of one dimension."""

Kind = Invariant | Replicate | Partial | At | Cut


def _transposed(kind: Kind) -> Kind:
    match kind:
        case Replicate():
            return Partial()
        case Partial():
            return Replicate()
        case Window(dim, place, by, attributes):
            return Overlap(dim, place, by, attributes)
        case Overlap(dim, place, by, attributes):
            return Window(dim, place, by, attributes)
    return kind


@cached_hash
@dataclass(frozen=True)
class Layout:
    """The kind of a tensor along every mesh axis."""

    kinds: tuple[Kind, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.kinds))

    @cached_property
    def transpose(self) -> Layout:
        """The layout of the gradient."""
        return interned(tuple(map(_transposed, self.kinds)))

    @cached_property
    def without_copies(self) -> Layout:
        """The layout of the value alone, whatever its gradient: Replicate becomes Invariant."""
        return interned(tuple(Invariant() if isinstance(kind, Replicate) else kind for kind in self.kinds))

    @cached_property
    def placement(self) -> Placement:
        """The devices that hold the tensor or a part of it."""
        return tuple((axis, kind.coordinate) for axis, kind in enumerate(self.kinds) if isinstance(kind, At))

    def everywhere(self, kind: Kind) -> Layout:
        """The layout with `kind` in place of every At."""
        return interned(tuple(kind if isinstance(found, At) else found for found in self.kinds))

    def nesting(self, dim: int) -> tuple[int, ...]:
        """The mesh axes that cut a dimension, major first."""
        return self._nestings.get(dim, ())

    @cached_property
    def _nestings(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        cuts = [(kind.dim, kind.place, axis) for axis, kind in enumerate(self.kinds) if isinstance(kind, Cut)]
        for dim, _, axis in sorted(cuts):
            found[dim] = (*found.get(dim, ()), axis)
        return found

    def cut(self, axis: int) -> Cut:
        """The kind along a mesh axis that cuts a dimension."""
        kind = self.kinds[axis]
        assert isinstance(kind, Cut), kind
        return kind

    def where(self, *kinds: type[Kind]) -> tuple[int, ...]:
        """The mesh axes along which the tensor has one of these kinds."""
        return tuple(axis for axis, found in enumerate(self.kinds) if isinstance(found, kinds))

    @cached_property
    def overlaps(self) -> bool:
        """Whether slices along some mesh axis may overlap: it is a Window or an Overlap."""
        return any(isinstance(kind, Window | Overlap) for kind in self.kinds)

    @cached_property
    def declared_dims(self) -> tuple[int, ...]:
        """The dimensions that are cut by an op other than partition."""
        cuts = (kind for kind in self.kinds if isinstance(kind, Cut))
        return tuple(sorted({kind.dim for kind in cuts if not isinstance(kind, Shard) or kind.by != PARTITION}))

    def inserted(self, dim: int) -> Layout:
        """The layout of a stack of tensors of this layout along a new dimension `dim`, which is not cut."""
        return interned(
            tuple(
                replace(kind, dim=kind.dim + 1) if isinstance(kind, Cut) and kind.dim >= dim else kind
                for kind in self.kinds
            )
        )

    def removed(self, dim: int) -> Layout:
        """The layout of the slices along a dimension that is not cut."""
        return interned(
            tuple(
                replace(kind, dim=kind.dim - 1) if isinstance(kind, Cut) and kind.dim > dim else kind
                for kind in self.kinds
            )
        )

    def local_shape(self, shape: tuple[int, ...], mesh: Mesh) -> tuple[int, ...]:
        """The shape on each device, for kinds that cut evenly: not Window and Overlap, whose op gives the length."""
        return tuple(size // mesh.degree(self.nesting(dim)) for dim, size in enumerate(shape))


@lru_cache(maxsize=1 << 16)
def interned(kinds: tuple[Kind, ...]) -> Layout:
    """The layout of these kinds, always the same object, which makes look-ups in tables faster."""
    return Layout(kinds)


def invariant(mesh: Mesh) -> Layout:
    return interned((Invariant(),) * len(mesh.axes))


def nest(kinds: Iterable[Kind]) -> Layout:
    """The layout of these kinds with `place` filled in: the mesh axes of each dimension are nested in mesh order."""
    used: dict[int, int] = {}
    placed: list[Kind] = []
    for kind in kinds:
        if isinstance(kind, Cut):
            place = used.get(kind.dim, 0)
            used[kind.dim] = place + 1
            kind = type(kind)(kind.dim, place, kind.by, kind.attributes)
        placed.append(kind)
    return interned(tuple(placed))
