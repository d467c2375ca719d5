"""Extrema of guarded values: `max(e) select(v == to[e], s[e, h], -inf)` is the greatest score of the edges to v."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from ...syntax.ast import Apply, Expr, Number, ReductionKind, Select, Ties
from .instance import Equation

EMPTY = {ReductionKind.MAX: -inf, ReductionKind.MIN: inf}
"""The extremum of no values, which is neutral: a value equal to it does not count."""


@dataclass(frozen=True)
class GuardedExtremum:
    """The extremum of `value` over positions where all `guards` hold.

    Elsewhere the value is `empty`, the neutral element.
    """

    guards: tuple[Expr, ...]
    value: Expr
    empty: Number

    def under(self, guards: Iterable[Expr]) -> Expr:
        """The value where these guards hold, else the neutral element."""
        value = self.value
        for guard in reversed(tuple(guards)):
            value = Select(guard, value, self.empty)
        return value


def guarded_extremum(equation: Equation) -> GuardedExtremum | None:
    """The guards of a max or min whose ties share the gradient; None if there are none."""
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
