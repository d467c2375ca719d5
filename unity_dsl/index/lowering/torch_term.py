"""Torch terms whose dimensions are labelled with axes, and how they combine and broadcast."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Union

from ...syntax.rational import Rational, plain_number


class Sort(Enum):
    """The type of a tensor's elements.

    RANDOM is float64 whatever the program's type, because a draw is compared exactly. COUNTER is for positions below
    2**31 at which numbers are drawn, and for the 1 and 0 of draws. POSITION is a number computed from positions alone,
    such as an angle or a table: bfloat16 does not distinguish positions above 256.
    """

    NUMBER = "a Python number"
    INT = "int64"
    FLOAT = "the program's float type"
    BOOL = "bool"
    POSITION = "float32, or the program's float type where that is wider"
    RANDOM = "float64"
    COUNTER = "int32"


@dataclass(frozen=True)
class Range:
    """`start:stop:step` in a subscript."""

    start: int | None = None
    stop: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Variable:
    """A named tensor: an operand of the operator, or a result of a statement. Numbers count from 0."""

    number: int


Argument = Union["Term", Variable, Range, int, float, str, None, tuple["Argument", ...], list["Argument"]]
"""An argument of a term.

A string is a word of Python or torch that stands for itself, such as `...` and `torch.int64`.
"""


@dataclass(frozen=True)
class Term:
    """A torch operation and its arguments.

    `axes` name the dimensions of the tensor in order; a Python number has none and has a `value`. `operation` is
    `torch.f` or `F.f` for a function, `.f` for a method and `@f` for an attribute of the first argument, `[]` for a
    subscript, an operator of Python, `neg`, `number`, `name` of a variable, `word` for a word that stands for itself,
    `state`, `float_type`, `index` (the device's index along a mesh axis), `uniform`, `at_least`, `places`, `surrogate`
    (a value, the tensor that gets its gradient, and the factor of the gradient), or `replicate`, `reduce`,
    `reduce_over` and `standardised` for collectives.
    """

    operation: str
    arguments: tuple[Argument, ...] = ()
    axes: tuple[str, ...] = ()
    sort: Sort = Sort.FLOAT
    keywords: tuple[tuple[str, Argument], ...] = ()
    value: int | float | None = None

    @property
    def is_name(self) -> bool:
        return self.operation == "name"

    def method(self, name: str, *arguments: Argument, axes: Sequence[str] | None = None) -> Term:
        """A method call on the tensor. The result has the same sort."""
        return Term(f".{name}", (self, *arguments), self.axes if axes is None else tuple(axes), self.sort)

    def at(self, parts: Sequence[Argument], axes: Sequence[str]) -> Term:
        """The tensor with a subscript."""
        return Term("[]", (self, *parts), tuple(axes), self.sort)

    def mapped(self, change: Callable[[Argument], Argument]) -> Term:
        """The term with `change` applied to each argument, and to each member of tuples and lists."""

        def each(given: Argument) -> Argument:
            match given:
                case tuple():
                    return tuple(map(each, given))
                case list():
                    return list(map(each, given))
            return change(given)

        keywords = tuple((key, each(value)) for key, value in self.keywords)
        return replace(self, arguments=tuple(map(each, self.arguments)), keywords=keywords)

    def attribute(self, name: str) -> Term:
        return Term(f"@{name}", (self,))


def number(given: Rational) -> Term:
    """A literal."""
    return Term("number", (), (), Sort.NUMBER, (), plain_number(given))


def word(text: str) -> Term:
    return Term("word", (text,))


INTEGER = word("torch.int64")
"""The type in which an operator that returns integers computes. Its terms then count as floats of that type."""


def torch_call(
    name: str, /, *arguments: Argument, axes: Sequence[str] = (), sort: Sort = Sort.FLOAT, **keywords: Argument
) -> Term:
    """A call of a function of torch."""
    return Term(name, arguments, tuple(axes), sort, tuple(keywords.items()))


def union(terms: Iterable[Term], order: Sequence[str]) -> tuple[str, ...]:
    """The axes of any of the terms, in the given order."""
    found = {axis for term in terms for axis in term.axes}
    return tuple(axis for axis in order if axis in found)


def align(term: Term, axes: Sequence[str], *, leading: bool = False) -> Term:
    """The term with its dimensions in the order of `axes`, and length 1 for each that it lacks.

    Missing leading dimensions are left to broadcasting, unless `leading`.
    """
    if term.sort is Sort.NUMBER or (not term.axes and not leading):
        return term
    own = [axis for axis in axes if axis in term.axes]
    assert len(own) == len(term.axes), f"{term.axes} do not lie in {tuple(axes)}"
    term = permute(term, own)
    missing = [axis not in own for axis in axes]
    if not leading:
        missing = missing[missing.index(False) :]
    if not any(missing):
        return term
    return term.at(_subscript(missing), axes[len(axes) - len(missing) :])


def _subscript(missing: Sequence[bool]) -> list[Argument]:
    """The subscript that adds missing dimensions, as `[:, None]`.

    `...` stands for kept dimensions if all come first.
    """
    kept = missing.index(True)
    if all(missing[kept:]) and kept > 1:
        return [word("..."), *(None for _ in missing[kept:])]
    last = len(missing) - missing[::-1].index(True)
    return [None if new else Range() for new in missing[:last]]


def permute(term: Term, axes: Sequence[str]) -> Term:
    """The term with its dimensions in another order."""
    if tuple(axes) == term.axes:
        return term
    places = [term.axes.index(axis) for axis in axes]
    moved = [place for place, old in enumerate(places) if place != old]
    if len(moved) == 2:
        first, second = (place - len(places) if len(places) - moved[0] <= 2 else place for place in moved)
        return term.method("transpose", first, second, axes=axes)
    return term.method("permute", *places, axes=axes)


def reshape(term: Term, shape: Sequence[Argument], axes: Sequence[str]) -> Term:
    """The same elements in another shape, whose dimensions are `axes`."""
    return term.method("reshape", *(shape or [()]), axes=axes)


_REGROUPED = 2
"""Up to this many dimensions are split or merged one by one, which does not name the sizes of the others."""


def split(term: Term, groups: Sequence[Sequence[int]]) -> Term:
    """Splits every dimension into these sizes, major first, or removes it (no sizes, length 1). Axes are numbered."""
    axes = tuple(map(str, range(sum(map(len, groups)))))
    changed = [place for place, sizes in enumerate(groups) if len(sizes) != 1]
    if len(changed) > _REGROUPED:
        return reshape(term, [size for sizes in groups for size in sizes], axes)
    for place in reversed(changed):
        sizes = groups[place]
        term = term.method("unflatten", place, tuple(sizes)) if sizes else term.method("squeeze", place)
    return replace(term, axes=axes)


def merge(term: Term, groups: Sequence[Sequence[int]]) -> Term:
    """The opposite of `split`: merges consecutive dimensions of these sizes.

    No sizes insert a dimension of length 1.
    """
    changed = [place for place, sizes in enumerate(groups) if len(sizes) != 1]
    axes = tuple(map(str, range(len(groups))))
    if len(changed) > _REGROUPED:
        return reshape(term, [prod(sizes) for sizes in groups], axes)
    for place in changed:
        last = place + len(groups[place]) - 1
        end = () if place == len(groups) - 1 else (last,)
        term = term.method("flatten", place, *end) if groups[place] else term.method("unsqueeze", place)
    return replace(term, axes=axes)


def infix(symbol: str, left: Term, right: Term, sort: Sort, order: Sequence[str]) -> Term:
    """`left symbol right`, broadcast against each other."""
    axes = union((left, right), order)
    return Term(symbol, (align(left, axes), align(right, axes)), axes, sort)


def within(place: Term, low: int, high: Argument) -> Term:
    """A mask of the positions in [low, high)."""
    bounds = (Term(">=", (place, low), place.axes, Sort.BOOL), Term("<", (place, high), place.axes, Sort.BOOL))
    return Term("&", bounds, place.axes, Sort.BOOL)


def cast(term: Term, dtype: Term) -> Term:
    """A tensor of another sort converted to floats."""
    if term.sort in (Sort.FLOAT, Sort.NUMBER):
        return term
    if term.sort is Sort.INT and dtype == INTEGER:
        return replace(term, sort=Sort.FLOAT)
    return Term(".to", (term, dtype), term.axes, Sort.FLOAT)


def integer(symbol: str, arguments: Sequence[Term]) -> Term:
    """Arithmetic on index terms that have no dimensions of their own, or all the same one. Numbers are folded."""
    values = [argument.value for argument in arguments if argument.value is not None]
    if len(values) == len(arguments):
        return number(ARITHMETIC[symbol](*values))
    return Term(symbol, tuple(arguments), (), Sort.INT)


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
"""`ARITHMETIC` and `COMPARE` evaluate numbers while the program is written."""
