"""Extrema of what guards select: `max(e) select(v == to[e], s[e, h], -inf)` is that of the scores of the edges to v."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from ...syntax.ast import Apply, Expr, Number, ReductionKind, Select, Ties
from .instance import Equation

EMPTY = {ReductionKind.MAX: -inf, ReductionKind.MIN: inf}
"""The extremum of nothing: a value that is this has no say."""


@dataclass(frozen=True)
class GuardedExtremum:
    """The extremum of `value` where all `guards` hold: elsewhere it is `empty`, the extremum of nothing."""

    guards: tuple[Expr, ...]
    value: Expr
    empty: Number

    def under(self, guards: Iterable[Expr]) -> Expr:
        """The value where these guards hold, else the extremum of nothing."""
        value = self.value
        for guard in reversed(tuple(guards)):
            value = Select(guard, value, self.empty)
        return value


def guarded_extremum(equation: Equation) -> GuardedExtremum | None:
    """The guards of a greatest or least value whose ties share the gradient; None where it has none."""
    if equation.kind not in EMPTY or equation.ties is not Ties.SHARE:
        return None
    empty, value = EMPTY[equation.kind], equation.value
    guards: list[Expr] = []
    while isinstance(value, Select) and _number(value.otherwise) == empty:
        guards.append(value.condition)
        value = value.then
    return GuardedExtremum(tuple(dict.fromkeys(guards)), value, Number(empty)) if guards else None


def _number(expr: Expr) -> float | None:
    match expr:
        case Number(value=value):
            return float(value)
        case Apply("neg", (Number(value=value),)):
            return -float(value)
    return None
