"""Torch expressions with the axes of their dimensions, and how they combine and broadcast."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from math import prod

from ..syntax.rational import Rational, plain_number

INTEGER = "torch.int64"
"""The type in which an operator that returns integers computes; its terms then count as floats of that type."""


class Sort(Enum):
    """What the elements are. RANDOM is float64 whatever the program's type: a draw is compared exactly.

    POSITION is a number made of positions alone, which bfloat16 does not tell apart beyond 256: an angle, a table.
    """

    NUMBER = "a Python number"
    INT = "int64"
    FLOAT = "the program's float type"
    BOOL = "bool"
    POSITION = "float32, or the program's float type where that is wider"
    RANDOM = "float64"


class Binding(IntEnum):
    """How tightly the outermost operator of an expression binds."""

    COMPARISON = 0
    AND = 1
    SUM = 2
    PRODUCT = 3
    SIGN = 4
    ATOM = 5


@dataclass(frozen=True)
class Piece:
    """Torch text. `axes` name the dimensions of the tensor in their order; a number has none and has a `value`."""

    code: str
    axes: tuple[str, ...] = ()
    sort: Sort = Sort.FLOAT
    binding: Binding = Binding.ATOM
    value: int | float | None = None

    def within(self, binding: Binding) -> str:
        """The text as an operand of an operator that binds so tightly."""
        return self.code if self.binding >= binding else f"({self.code})"

    @property
    def atom(self) -> str:
        """The text where a method or a subscript may follow."""
        if self.sort is Sort.NUMBER:
            return f"({self.code})"
        return self.within(Binding.ATOM)


def number(given: Rational) -> Piece:
    """A literal, infinite ones spelt as Python needs it."""
    value = plain_number(given)
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return Piece(f'float("{value}")', (), Sort.NUMBER, Binding.ATOM, value)
    return Piece(repr(value), (), Sort.NUMBER, Binding.SIGN if value < 0 else Binding.ATOM, value)


def union(pieces: Iterable[Piece], order: Sequence[str]) -> tuple[str, ...]:
    """The axes of any of the pieces, in the given order."""
    found = {axis for piece in pieces for axis in piece.axes}
    return tuple(axis for axis in order if axis in found)


def align(piece: Piece, axes: Sequence[str], *, leading: bool = False) -> Piece:
    """The piece with its dimensions in the order of `axes`, and length 1 where it lacks one.

    Leading dimensions that it lacks are left to broadcasting, unless `leading`.
    """
    if piece.sort is Sort.NUMBER or (not piece.axes and not leading):
        return piece
    own = [axis for axis in axes if axis in piece.axes]
    assert len(own) == len(piece.axes), f"{piece.axes} do not lie in {tuple(axes)}"
    piece = permute(piece, own)
    missing = [axis not in own for axis in axes]
    if not leading:
        missing = missing[missing.index(False) :]
    if not any(missing):
        return piece
    return Piece(f"{piece.atom}[{_subscript(missing)}]", tuple(axes[len(axes) - len(missing) :]), piece.sort)


def _subscript(missing: Sequence[bool]) -> str:
    """`[:, None]`: a new dimension where one is missing, `...` for the kept ones if they all come first."""
    kept = missing.index(True)
    if all(missing[kept:]) and kept > 1:
        return ", ".join(["...", *("None" for _ in missing[kept:])])
    last = len(missing) - missing[::-1].index(True)
    return ", ".join("None" if new else ":" for new in missing[:last])


def permute(piece: Piece, axes: Sequence[str]) -> Piece:
    """The piece with its dimensions in another order."""
    if tuple(axes) == piece.axes:
        return piece
    places = [piece.axes.index(axis) for axis in axes]
    moved = [place for place, old in enumerate(places) if place != old]
    if len(moved) == 2:
        first, second = (place - len(places) if len(places) - moved[0] <= 2 else place for place in moved)
        return Piece(f"{piece.atom}.transpose({first}, {second})", tuple(axes), piece.sort)
    return Piece(f"{piece.atom}.permute({', '.join(map(str, places))})", tuple(axes), piece.sort)


def reshape(piece: Piece, shape: Sequence[int], axes: Sequence[str]) -> Piece:
    """The same elements in another shape, whose dimensions are `axes`."""
    return Piece(f"{piece.atom}.reshape({', '.join(map(str, shape)) or '()'})", tuple(axes), piece.sort)


_REGROUPED = 2
"""So many dimensions are split or merged one by one, which does not name the sizes of the others."""


def split(piece: Piece, groups: Sequence[Sequence[int]]) -> Piece:
    """Every dimension as several of these sizes, major first, or as none, if it has length 1; axes are numbers."""
    text, rank = piece.atom, sum(map(len, groups))
    changed = [place for place, sizes in enumerate(groups) if len(sizes) != 1]
    if len(changed) > _REGROUPED:
        return reshape(piece, [size for sizes in groups for size in sizes], tuple(map(str, range(rank))))
    for place in reversed(changed):
        sizes = groups[place]
        text += f".unflatten({place}, ({', '.join(map(str, sizes))}))" if sizes else f".squeeze({place})"
    return Piece(text, tuple(map(str, range(rank))), piece.sort)


def merge(piece: Piece, groups: Sequence[Sequence[int]]) -> Piece:
    """The opposite: consecutive dimensions of these sizes as one, none as one of length 1."""
    changed = [place for place, sizes in enumerate(groups) if len(sizes) != 1]
    axes = tuple(map(str, range(len(groups))))
    if len(changed) > _REGROUPED:
        return reshape(piece, [prod(sizes) for sizes in groups], axes)
    text = piece.atom
    for place in changed:
        last = place + len(groups[place]) - 1
        end = "" if place == len(groups) - 1 else f", {last}"
        text += f".flatten({place}{end})" if groups[place] else f".unsqueeze({place})"
    return Piece(text, axes, piece.sort)


def infix(symbol: str, binding: Binding, left: Piece, right: Piece, sort: Sort, order: Sequence[str]) -> Piece:
    """`left symbol right`, broadcast against each other; operators of one binding group to the left."""
    axes = union((left, right), order)
    left, right = align(left, axes), align(right, axes)
    tighter = Binding(binding + 1)
    own = Binding.SUM if binding is Binding.COMPARISON else binding
    text = f"{left.within(own)} {symbol} {right.within(tighter)}"
    return Piece(text, axes, sort, binding)


def cast(piece: Piece, dtype: str) -> Piece:
    """A tensor of another sort as one of floats."""
    if piece.sort in (Sort.FLOAT, Sort.NUMBER):
        return piece
    if piece.sort is Sort.INT and dtype == INTEGER:
        return replace(piece, sort=Sort.FLOAT)
    return replace(piece, code=f"{piece.atom}.to({dtype})", sort=Sort.FLOAT, binding=Binding.ATOM)


def integer(function: str, arguments: Sequence[Piece]) -> Piece:
    """Arithmetic of indices that have no dimensions of their own, or all the same one; numbers are folded."""
    if all(argument.value is not None for argument in arguments):
        return number(ARITHMETIC[function](*(argument.value for argument in arguments)))
    if function == "neg":
        return Piece(f"-{arguments[0].within(Binding.SIGN)}", (), Sort.INT, Binding.SIGN)
    binding = Binding.SUM if function in "+-" else Binding.PRODUCT
    return infix(function, binding, arguments[0], arguments[1], Sort.INT, ())


ARITHMETIC: Mapping[str, Callable[..., int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "neg": operator.neg,
}
COMPARE: Mapping[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Arithmetic and comparison of numbers, done while the program is written."""
