"""How a tensor is held by the devices of a mesh: per mesh axis, its value and its cotangent.

| kind      | value                                  | cotangent |
|-----------|----------------------------------------|-----------|
| Invariant | one logical tensor, the axis is absent | Invariant |
| Replicate | a copy per device, each used by itself | Partial   |
| Partial   | a term of a sum per device             | Replicate |
| Shard     | a slice of one dimension per device    | Shard     |

The cotangent's layout is the transpose of the value's, so the backward of a conversion is the conversion between the
transposed layouts, in the other direction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True, order=True)
class MeshAxis:
    """One axis of the device mesh. `level` is the slowest link its groups cross: 0 inside a node, 1 between nodes."""

    name: str
    degree: int
    level: int = 0


@dataclass(frozen=True)
class Mesh:
    """The devices as a grid, first axis outermost (its neighbours are furthest apart)."""

    axes: tuple[MeshAxis, ...]

    @property
    def size(self) -> int:
        return prod(axis.degree for axis in self.axes)

    @property
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
        return prod(self.axes[axis].degree for axis in axes)


@dataclass(frozen=True, order=True)
class Invariant:
    def __str__(self) -> str:
        return "I"

    def __hash__(self) -> int:
        return 1  # kinds without fields would all have one hash, and layouts collide


@dataclass(frozen=True, order=True)
class Replicate:
    def __str__(self) -> str:
        return "R"

    def __hash__(self) -> int:
        return 2


@dataclass(frozen=True, order=True)
class Partial:
    def __str__(self) -> str:
        return "P"

    def __hash__(self) -> int:
        return 3


@dataclass(frozen=True, order=True)
class Shard:
    """Slices of dimension `dim`. `place` nests several mesh axes on one dimension, 0 the major one.

    `by` names the declared parallel op that cuts the slices; `partition` cuts contiguous blocks.
    """

    dim: int
    place: int = 0
    by: str = "partition"

    def __str__(self) -> str:
        return f"S{self.dim}" if self.by == "partition" else f"{self.by}({self.dim})"


Kind = Invariant | Replicate | Partial | Shard


def _transposed(kind: Kind) -> Kind:
    match kind:
        case Replicate():
            return Partial()
        case Partial():
            return Replicate()
    return kind


@dataclass(frozen=True)
class Layout:
    """The kind of a tensor along every mesh axis."""

    kinds: tuple[Kind, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.kinds)

    def __str__(self) -> str:
        return ",".join(map(str, self.kinds))

    @property
    def transpose(self) -> Layout:
        """The layout of the cotangent."""
        return Layout(tuple(map(_transposed, self.kinds)))

    def nesting(self, dim: int) -> tuple[int, ...]:
        """The mesh axes that shard a dimension, major first."""
        return self._nestings.get(dim, ())

    @cached_property
    def _nestings(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        cuts = [(kind.dim, kind.place, axis) for axis, kind in enumerate(self.kinds) if isinstance(kind, Shard)]
        for dim, _, axis in sorted(cuts):
            found[dim] = (*found.get(dim, ()), axis)
        return found

    def where(self, kind: type[Kind]) -> tuple[int, ...]:
        """The mesh axes along which the tensor has this kind."""
        return tuple(axis for axis, found in enumerate(self.kinds) if isinstance(found, kind))

    def local_shape(self, shape: tuple[int, ...], mesh: Mesh) -> tuple[int, ...]:
        """The shape each device holds, for kinds that cut evenly (all but user-declared overlapping ones)."""
        return tuple(size // mesh.degree(self.nesting(dim)) for dim, size in enumerate(shape))


def invariant(mesh: Mesh) -> Layout:
    return Layout((Invariant(),) * len(mesh.axes))


def nest(kinds: Iterable[Kind]) -> Layout:
    """A layout whose mesh axes are nested in mesh order on every dimension: `place` is filled in."""
    used: dict[int, int] = {}
    placed: list[Kind] = []
    for kind in kinds:
        if isinstance(kind, Shard):
            place = used.get(kind.dim, 0)
            used[kind.dim] = place + 1
            kind = Shard(kind.dim, place, kind.by)
        placed.append(kind)
    return Layout(tuple(placed))
