"""Tensors of a captured graph as arrangements of the axes of named values; a view becomes text where it is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from string import ascii_lowercase

from torch import Tensor


class Unarranged(ValueError):
    """Raised where sizes do not split a view's axes: the view has to be materialised first."""


@dataclass(frozen=True, eq=False)
class Axis:
    """A part of a dimension; axes are compared by identity."""

    size: int


Dim = tuple[Axis, ...]
"""The axes of a dimension, major first; empty for a dimension of one element."""


@dataclass(frozen=True)
class Part:
    """A range of a dimension of a weight. `word` distinguishes the parts of a weight."""

    dim: int
    start: int
    stop: int
    word: str

    def of(self, tensor: Tensor) -> Tensor:
        return tensor.narrow(self.dim, self.start, self.stop - self.start)


@dataclass(eq=False)
class Value:
    """A tensor that the model's text names: an input, a weight, a buffer, or the result of a statement.

    `state` is the name of a weight or a buffer in the module's state_dict, and `part` the range of it that this value
    is. `bound` is the number of values of an integer tensor. `constant` is what a weight, a buffer or a constant input
    holds in the module.
    """

    shape: tuple[int, ...]
    kind: str = "made"
    state: str = ""
    bound: int | None = None
    constant: Tensor | None = None
    name: str = ""
    part: Part | None = None
    parts: dict[Part, Value] = field(default_factory=dict)

    def part_of(self, part: Part) -> Value:
        """The weight that is this part of this one, one object for each part."""
        if part not in self.parts:
            shape = [*self.shape]
            shape[part.dim] = part.stop - part.start
            constant = None if self.constant is None else part.of(self.constant)
            self.parts[part] = replace(self, shape=tuple(shape), constant=constant, part=part, parts={})
        return self.parts[part]


@dataclass(frozen=True)
class View:
    """A value in another arrangement: `base` are the axes of the value's dimensions, `dims` those of the view's. Axes
    that are not in `base` are repeated.
    """

    value: Value
    base: tuple[Dim, ...]
    dims: tuple[Dim, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(prod(axis.size for axis in dim) for dim in self.dims)

    @property
    def is_whole(self) -> bool:
        """Whether the view shows its value unarranged."""
        return self.base == self.dims

    @property
    def repeated(self) -> frozenset[Axis]:
        """The axes along which all elements are the same."""
        own = {axis for dim in self.base for axis in dim}
        return frozenset(axis for dim in self.dims for axis in dim if axis not in own)

    def arranged(self, dims: Sequence[Dim]) -> View:
        return View(self.value, self.base, tuple(dims))

    def permuted(self, order: Sequence[int]) -> View:
        return self.arranged([self.dims[place] for place in order])

    def without_dims(self, places: Collection[int]) -> View:
        """The view without these dimensions, which have one element each."""
        gone = {place % len(self.dims) for place in places}
        return self.arranged([dim for place, dim in enumerate(self.dims) if place not in gone])

    def reshaped(self, shape: Sequence[int]) -> View:
        """The elements in the same order in other dimensions. Raises Unarranged where a size cuts through an axis."""
        view, axes = self, [axis for dim in self.dims for axis in dim]
        dims: list[Dim] = []
        for size in shape:
            taken: list[Axis] = []
            while prod(axis.size for axis in taken) < size:
                needed = size // prod(axis.size for axis in taken)
                if not axes or needed < 2:
                    raise Unarranged(f"{self.shape} as {tuple(shape)}")
                axis = axes.pop(0)
                if axis.size > needed:
                    if axis.size % needed:
                        raise Unarranged(f"{self.shape} as {tuple(shape)}")
                    parts = Axis(needed), Axis(axis.size // needed)
                    view, axis = view.split(axis, parts), parts[0]
                    axes.insert(0, parts[1])
                taken.append(axis)
            if prod(axis.size for axis in taken) != size:
                raise Unarranged(f"{self.shape} as {tuple(shape)}")
            dims.append(tuple(taken))
        if axes:
            raise Unarranged(f"{self.shape} as {tuple(shape)}")
        return view.arranged(dims)

    def split(self, axis: Axis, parts: Dim) -> View:
        """The view with an axis split into several."""
        base = tuple(_replaced(dim, axis, parts) for dim in self.base)
        return View(self.value, base, tuple(_replaced(dim, axis, parts) for dim in self.dims))

    def expanded(self, shape: Sequence[int]) -> View:
        """The view repeated along dimensions of one element; -1 keeps a dimension."""
        dims = [()] * (len(shape) - len(self.dims)) + list(self.dims)
        found = []
        for dim, size in zip(dims, shape, strict=True):
            own = prod(axis.size for axis in dim)
            found.append(dim if size in (-1, own) else (Axis(size),))
        return self.arranged(found)

    def without(self, axes: frozenset[Axis]) -> View:
        """The view without these axes, along which it is repeated."""
        return self.arranged([tuple(axis for axis in dim if axis not in axes) for dim in self.dims])

    def within(self, inner: View) -> View:
        """This view, where its value is itself the view `inner`. Raises Unarranged where both split its axes at other
        places.
        """
        axes = [axis for dim in self.base for axis in dim]
        apart = inner.reshaped([axis.size for axis in axes])
        known = dict(zip(axes, apart.dims, strict=True))
        return apart.arranged([tuple(part for axis in dim for part in known.get(axis, (axis,))) for dim in self.dims])

    def text(self, name: str) -> str:
        """The text by which it is read: `q`, or `q[a, b, (c=4 d)] -> [a, c, b, d]`. Raises Unarranged where it is
        repeated.
        """
        if self.is_whole:
            return name
        if self.repeated:
            raise Unarranged(f"{self.shape} of {name}, repeated")
        letters = dict(zip((axis for dim in self.base for axis in dim), _letters(), strict=False))
        left = ", ".join(_dim_text(dim, letters, sized=True) for dim in self.base)
        right = ", ".join(_dim_text(dim, letters, sized=False) for dim in self.dims)
        return f"{name}[{left}] -> [{right}]"


def whole(value: Value) -> View:
    """The view of a value in its own arrangement."""
    dims = tuple((Axis(size),) if size != 1 else () for size in value.shape)
    return View(value, dims, dims)


def _replaced(dim: Dim, axis: Axis, parts: Dim) -> Dim:
    return tuple(part for own in dim for part in (parts if own is axis else (own,)))


def _letters() -> Iterator[str]:
    yield from ascii_lowercase
    yield from (f"a{number}" for number in range(100))


def _dim_text(dim: Dim, letters: dict[Axis, str], *, sized: bool) -> str:
    if not dim:
        return "1"
    if len(dim) == 1:
        return letters[dim[0]]
    first, *others = dim
    sizes = [f"{letters[first]}", *(f"{letters[axis]}={axis.size}" for axis in others)] if sized else []
    return f"({' '.join(sizes or [letters[axis] for axis in dim])})"
