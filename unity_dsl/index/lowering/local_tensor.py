"""Shapes, strides and storages of tensors as torch makes them: which results are views, and which are copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from .torch_term import Sort

Shape = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Storage:
    """The memory of a tensor and of its views. No storage equals another.

    Nothing changes a storage, but the class is not frozen: a simulated step has tens of thousands of storages, and a
    frozen one takes three times as long to make.
    """

    bytes: int


@dataclass(frozen=True)
class Tensor:
    """A tensor without its elements. `moves` says that it has a gradient."""

    shape: Shape
    strides: Shape
    storage: Storage
    sort: Sort = Sort.FLOAT
    moves: bool = False

    def viewed(self, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def permuted(self, places: Sequence[int]) -> Tensor:
        return self.viewed([self.shape[place] for place in places], [self.strides[place] for place in places])

    def expanded(self, shape: Sequence[int]) -> Tensor:
        """Broadcast to a shape."""
        missing = len(shape) - len(self.shape)
        old, strides = (1,) * missing + self.shape, (0,) * missing + self.strides
        repeated = zip(old, strides, shape, strict=True)
        return self.viewed(shape, [0 if had == 1 != size else stride for had, stride, size in repeated])

    def split(self, shape: Sequence[int]) -> Tensor | None:
        """The same elements in another shape, if that is a view (ATen's computeStride); else None."""
        found = view_strides(self.shape, self.strides, tuple(shape))
        return None if found is None else self.viewed(shape, found)


@dataclass
class Memory:
    """The storages that a program makes, in order. `width` is the number of bytes of one of its floats."""

    width: int
    whole: bool = False
    built: list[Storage] = field(default_factory=list)

    def element_bytes(self, sort: Sort) -> int:
        match sort:
            case Sort.BOOL:
                return 1
            case Sort.COUNTER:
                return 4
            case Sort.POSITION:
                return max(self.width, 4)
            case Sort.INT | Sort.RANDOM:
                return 8
        return 8 if self.whole else self.width

    def new(self, shape: Sequence[int], sort: Sort, *, moves: bool = False, order: Iterable[int] = ()) -> Tensor:
        """A tensor with its own storage.

        `order` lists its dimensions, fastest first; by default the last dimension is fastest.
        """
        strides, count = [1] * len(shape), 1
        for dim in order or reversed(range(len(shape))):
            strides[dim], count = count, count * shape[dim]
        storage = Storage(count * self.element_bytes(sort))
        self.built.append(storage)
        return Tensor(tuple(shape), tuple(strides), storage, sort, moves and sort in (Sort.FLOAT, Sort.POSITION))

    def elementwise(self, tensors: Sequence[Tensor], sort: Sort, *, moves: bool = False) -> Tensor:
        """The result of an elementwise kernel over broadcast tensors.

        Its dimensions have the operands' order in memory.
        """
        shape = broadcast([tensor.shape for tensor in tensors])
        strides = [tensor.expanded(shape).strides for tensor in tensors]
        return self.new(shape, sort, moves=moves, order=_order(shape, strides))

    def reshaped(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """A view if there is one, else a copy."""
        found = tensor.split(shape)
        return found if found is not None else self.new(shape, tensor.sort, moves=tensor.moves)


def contiguous(shape: Sequence[int]) -> Shape:
    """The strides of a tensor whose last dimension runs fastest."""
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape to which all of these are broadcast."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def _order(shape: Shape, operands: Sequence[Shape]) -> list[int]:
    """The dimensions, fastest first (ATen's TensorIterator::reorder_dimensions)."""
    order = list(reversed(range(len(shape))))
    for start in range(1, len(order)):
        late = start
        for early in reversed(range(start)):
            turn = _compared(order[early], order[late], shape, operands)
            if turn > 0:
                order[early], order[late] = order[late], order[early]
                late = early
            elif turn < 0:
                break
    return order


def _compared(first: int, second: int, shape: Shape, operands: Sequence[Shape]) -> int:
    """Positive if the second dimension is the faster one, negative if the first is, 0 if no operand decides."""
    for strides in operands:
        one, other = strides[first], strides[second]
        if one == 0 or other == 0:
            continue
        if one != other:
            return -1 if one < other else 1
        if shape[first] > shape[second]:
            return 1
    return 0


def view_strides(old: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Strides of a view in another shape with as many elements; None if only a copy can have that shape."""
    if not old:
        return (1,) * len(new)
    if 0 in old:
        return strides if old == new else (1,) * len(new)
    found = [1] * len(new)
    place, base, count, viewed = len(new) - 1, strides[-1], 1, 1
    for dim in reversed(range(len(old))):
        count *= old[dim]
        if dim and (old[dim - 1] == 1 or strides[dim - 1] == count * base):
            continue
        while place >= 0 and (viewed < count or new[place] == 1):
            found[place] = viewed * base
            viewed *= new[place]
            place -= 1
        if viewed != count:
            return None
        if dim:
            base, count, viewed = strides[dim - 1], 1, 1
    return tuple(found) if place == -1 else None
