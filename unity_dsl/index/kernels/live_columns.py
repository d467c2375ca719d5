"""The columns that count for a row of a kernel, if comparisons of positions decide this: causal masks, windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...syntax.ast import Apply, Expr, Number, Read, ReductionKind, Select
from ..equations.term import affine, walk
from .read_closure import Nests, read_by


@dataclass(frozen=True)
class Live:
    """The columns that count for row r: from r + `first` to r + `last`; None means no such limit."""

    first: int | None = None
    last: int | None = None

    def __and__(self, other: Live) -> Live:
        firsts = [first for first in (self.first, other.first) if first is not None]
        lasts = [last for last in (self.last, other.last) if last is not None]
        return Live(max(firsts, default=None), min(lasts, default=None))

    def part(self, rows: int, columns: int) -> float:
        """The fraction of all (row, column) pairs that counts."""
        places = np.arange(rows)
        first = 0 if self.first is None else np.maximum(0, places + self.first)
        last = columns - 1 if self.last is None else np.minimum(columns - 1, places + self.last)
        return 1.0 if self == ALL else float(np.maximum(0, last - first + 1).sum()) / (rows * columns)


ALL = Live()
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ZERO, _MINUS_INFINITY = Number(0), Number(float("-inf"))


def live_columns(nests: Nests, targets: Sequence[str], row: str, column: str, sizes: Mapping[str, int]) -> Live:
    """The columns that reductions along columns need.

    Columns where a comparison fails are left out if the values there are 0 in a sum, or -inf in a maximum. The other
    factors of such a 0 are finite, as for every ring law (docs/proofs.md).
    """
    found = ALL
    for condition in dict.fromkeys(_comparisons(nests, targets)):
        live = _bounds(condition, row, column, sizes)
        if live != ALL and all(_vanishes(nests, target, condition) for target in targets):
            found &= live
    return found


def _bounds(condition: Apply, row: str, column: str, sizes: Mapping[str, int]) -> Live:
    """The columns of a row for which a comparison of `column - row` with a number holds; all for other comparisons."""
    left, right = (affine(side, sizes) for side in condition.arguments)
    if left is None or right is None:
        return ALL
    less, function = left + right.scaled(-1), condition.function
    if less.coefficients.get(column) == -1:
        less, function = less.scaled(-1), _TURNED[function]
    if dict(less.coefficients) != {column: 1, row: -1}:
        return ALL
    if function in ("<", "<="):
        return Live(last=-less.constant - (function == "<"))
    return Live(first=-less.constant + (function == ">"))


def _comparisons(nests: Nests, targets: Sequence[str]) -> Iterator[Apply]:
    """The comparisons of positions that select between values."""
    values = [nests[target].value for target in targets]
    read = read_by(values, nests, lambda name: True)
    for value in (*values, *(nest.value for name, nest in nests.items() if name in read)):
        for node in walk(value):
            match node:
                case Select(Apply(function) as condition) if function in _TURNED:
                    yield condition


def _vanishes(nests: Nests, target: str, condition: Apply) -> bool:
    kind = nests[target].equation.kind
    left = _left(nests, nests[target].value, condition)
    return left == (_ZERO if kind is ReductionKind.SUM else _MINUS_INFINITY) and kind is not ReductionKind.MIN


def _left(nests: Nests, value: Expr, condition: Apply) -> Number | None:
    """0 or -inf, if the value is that wherever the condition does not hold; else None."""

    def left(part: Expr) -> Number | None:
        return _left(nests, part, condition)

    match value:
        case Number():
            return value if value in (_ZERO, _MINUS_INFINITY) else None
        case Apply("neg", (Number(value=number),)) if number == float("inf"):
            return _MINUS_INFINITY
        case Read(tensor=tensor, fill=None) if tensor in nests and not nests[tensor].over:
            return left(nests[tensor].value)
        case Select(chosen, then, otherwise):
            return left(otherwise) if chosen == condition else left(then) if left(then) == left(otherwise) else None
        case Apply("exp", (inner,)):
            return _ZERO if left(inner) == _MINUS_INFINITY else None
        case Apply("neg", (inner,)):
            return _ZERO if left(inner) == _ZERO else None
        case Apply("+" | "-", (first, second)):
            if left(first) == _MINUS_INFINITY:  # the other operand is finite
                return _MINUS_INFINITY
            return _ZERO if left(first) == left(second) == _ZERO else None
        case Apply("*", (first, second)):
            return _ZERO if _ZERO in (left(first), left(second)) else None
        case Apply("/", (first, _)):
            return _ZERO if left(first) == _ZERO else None
    return None
