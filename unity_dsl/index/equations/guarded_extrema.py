"""Extrema of what guards select: `max(e) select(v == to[e], s[e, h], -inf)` is that of the scores of the edges to v."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from ...syntax.ast import Apply, Expr, Number, ReductionKind, Select, Ties
from .instance import Equation
from .term import COMPARISONS, call

EMPTY = {ReductionKind.MAX: -inf, ReductionKind.MIN: inf}
"""The extremum of nothing: a value that is this has no say."""


@dataclass(frozen=True)
class GuardedExtremum:
    """The extremum of `value` where all `guards`, which are comparisons, hold; of what else there is it is `empty`."""

    guards: tuple[Expr, ...]
    value: Expr
    empty: Number

    def under(self, guards: Iterable[Expr]) -> Expr:
        """The value where these guards hold, else the extremum of nothing."""
        condition: Expr | None = None
        for guard in guards:
            condition = guard if condition is None else call("*", condition, guard)
        return self.value if condition is None else Select(condition, self.value, self.empty)


def guarded_extremum(equation: Equation) -> GuardedExtremum | None:
    """The guards of a greatest or least value whose ties share the gradient; None where it has none."""
    if equation.kind not in EMPTY or equation.ties is not Ties.SHARE:
        return None
    empty, value = EMPTY[equation.kind], equation.value
    guards: list[Expr] = []
    while isinstance(value, Select) and _number(value.otherwise) == empty:
        found = list(_conjuncts(value.condition))
        if not all(isinstance(part, Apply) and part.function in COMPARISONS for part in found):
            break
        guards += found
        value = value.then
    return GuardedExtremum(tuple(dict.fromkeys(guards)), value, Number(empty)) if guards else None


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    """The factors of a condition: it holds where all of them do."""
    match condition:
        case Apply("*", (left, right)):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield condition


def _number(expr: Expr) -> float | None:
    match expr:
        case Number(value=value):
            return float(value)
        case Apply("neg", (Number(value=value),)):
            return -float(value)
    return None
