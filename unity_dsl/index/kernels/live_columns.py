"""Which columns count for a row of a kernel, where a comparison of their positions decides it: causal masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto

from ...syntax.ast import Apply, Expr, Name, Number, Read, ReductionKind, Select
from ..equations.term import walk
from .read_closure import Nests, read_by


class Live(Enum):
    """Columns that count for a row: all, those up to its own position, those from it on."""

    ALL = auto()
    UP_TO_ROW = auto()
    FROM_ROW = auto()


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ZERO, _MINUS_INFINITY = Number(0), Number(float("-inf"))


def live_columns(nests: Nests, targets: Sequence[str], row: str, column: str) -> Live:
    """The columns without which reductions along them are the same.

    That is shown by what is left of values where the comparison does not hold: 0 in a sum, -inf in a maximum. What
    0 is multiplied with is finite, as for every ring law (docs/proofs.md).
    """
    for condition in dict.fromkeys(_comparisons(nests, targets)):
        if all(_vanishes(nests, target, condition) for target in targets):
            function, (left, _) = condition.function, condition.arguments
            sign = function if left == Name(column) else _TURNED[function]
            if {*condition.arguments} == {Name(row), Name(column)}:
                return Live.UP_TO_ROW if sign in ("<", "<=") else Live.FROM_ROW
    return Live.ALL


def _comparisons(nests: Nests, targets: Sequence[str]) -> Iterator[Apply]:
    """Those of two axes that decide between values."""
    values = [nests[target].value for target in targets]
    read = read_by(values, nests, lambda name: True)
    for value in (*values, *(nest.value for name, nest in nests.items() if name in read)):
        for node in walk(value):
            match node:
                case Select(Apply(function, (Name(), Name())) as condition) if function in _TURNED:
                    yield condition


def _vanishes(nests: Nests, target: str, condition: Apply) -> bool:
    kind = nests[target].equation.kind
    left = _left(nests, nests[target].value, condition)
    return left == (_ZERO if kind is ReductionKind.SUM else _MINUS_INFINITY) and kind is not ReductionKind.MIN


def _left(nests: Nests, value: Expr, condition: Apply) -> Number | None:
    """0 or -inf, if a value is that where the condition does not hold."""

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
            if left(first) == _MINUS_INFINITY:  # what is added or subtracted is finite
                return _MINUS_INFINITY
            return _ZERO if left(first) == left(second) == _ZERO else None
        case Apply("*", (first, second)):
            return _ZERO if _ZERO in (left(first), left(second)) else None
        case Apply("/", (first, _)):
            return _ZERO if left(first) == _ZERO else None
    return None
