"""Expressions, common to all three languages: the terms of the index calculus."""

# ruff: noqa: RUF009 (`span_field()` is a field specification, not a shared default)

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..rational import Rational
from ..span import Span, span_field

LARGEST_INTEGER = 2**63 - 1
"""Whole numbers, and so sizes and indices, are 64-bit in every program."""


@dataclass(frozen=True)
class Number:
    """A literal by its value; `inf` is a literal too."""

    value: Rational
    span: Span | None = span_field()


@dataclass(frozen=True)
class Name:
    """A bare name: an axis (as an index or as its value), an attribute, a model parameter or a tensor.

    `rest` marks `b..`, a name that stands for any number of axes.
    """

    name: str
    rest: bool = False
    span: Span | None = span_field()


@dataclass(frozen=True)
class Size:
    """`|c|`, the number of positions of an axis; `|b..|`, the product over rest axes; `|d|` is global, never local."""

    name: str
    rest: bool = False
    span: Span | None = span_field()


@dataclass(frozen=True)
class DeviceName:
    """`@p`: the index along a device axis. Its size is `Name("p")`."""

    name: str
    span: Span | None = span_field()


@dataclass(frozen=True)
class Read:
    """`x[i, j + 1 else 0]`: an element of a tensor. Reading outside the tensor gives `fill`; without it, an error."""

    tensor: str
    index: tuple[Expr, ...]
    fill: Expr | None = None
    span: Span | None = span_field()


@dataclass(frozen=True)
class Apply:
    """An element function or arithmetic. Arithmetic is spelt `+ - * / // % neg`; comparisons `== != < <= > >=`.

    A comparison in value position is written in brackets, `[v == ids[n]]`, and has the value 1 or 0 (Iverson).
    """

    function: str
    arguments: tuple[Expr, ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class Select:
    """`select(condition, then, otherwise)`: the branch not taken is not evaluated, so it may be infinite."""

    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span | None = span_field()


class ReductionKind(StrEnum):
    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"


class Ties(StrEnum):
    """Which of several equal elements gets the gradient of a max or min: all in equal shares, or the first in order."""

    SHARE = "share"
    FIRST = "first"


@dataclass(frozen=True)
class Reduce:
    """`sum(i, j) body`: body is the product that follows. Axes may be rest axes or device axes."""

    kind: ReductionKind
    axes: tuple[Name | DeviceName, ...]
    body: Expr
    ties: Ties = Ties.SHARE
    span: Span | None = span_field()


@dataclass(frozen=True)
class Uniform:
    """`uniform[b..]`: a counter-based random number in [0, 1), a function of (seed, step, site, global index)."""

    index: tuple[Expr, ...]
    span: Span | None = span_field()


Expr = Number | Name | Size | DeviceName | Read | Apply | Select | Reduce | Uniform
