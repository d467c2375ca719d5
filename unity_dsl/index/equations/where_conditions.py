"""Solves `where` conditions by propagation: sizes and ranks that equations determine, at numbers and at symbolic sizes.

An equation with one unknown under invertible arithmetic determines it. The `Unknowns` define the domain of values:
numbers, or products of symbols. At numbers an environment maps names to values: sizes and attributes by name, `b..`
(the product of rest axes) and `rank(f)`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Protocol, TypeVar

from ...syntax.ast import Apply, Expr, Name, Number, Size
from ...syntax.rational import Rational, exact_number, rational
from .term import children, walk

Value = Rational
Environment = dict[str, Value]
V = TypeVar("V")


class Unsolvable(Exception):
    """An equation has no integer solution. The first argument says why."""


_COMPARE: Mapping[str, Callable[[Rational, Rational], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPUTE: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_EXACT: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": operator.mod,
    "/": operator.truediv,
    "//": lambda left, right: Fraction(left // right),
}


def unknown_key(expr: Expr) -> str | None:
    """The environment's key of a leaf: `c`, `b..` or `rank(f)`; None for anything else."""
    if isinstance(expr, Name | Size):
        return f"{expr.name}.." if expr.rest else expr.name
    if isinstance(expr, Apply) and expr.function == "rank":
        match expr.arguments:
            case (Name(name),):
                return f"rank({name})"
    return None


def leaves(expr: Expr) -> tuple[tuple[str, Expr], ...]:
    """The sizes, attributes and ranks of a condition, as keys with their terms, in the order of the text."""
    key = unknown_key(expr)
    if key is not None:
        return ((key, expr),)
    return tuple(leaf for part in children(expr) for leaf in leaves(part))


def keys(expr: Expr) -> tuple[str, ...]:
    """The keys of a condition's leaves, each once."""
    return tuple(dict.fromkeys(key for key, _ in leaves(expr)))


def value_of(expr: Expr, known: Mapping[str, Value]) -> Value | None:
    """The value of an expression of sizes and attributes; None if something in it is unknown."""
    if isinstance(expr, Number):
        return expr.value
    key = unknown_key(expr)
    if key is not None:
        return known.get(key)
    if not isinstance(expr, Apply):
        return None
    values = [value_of(argument, known) for argument in expr.arguments]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    if expr.function == "neg":
        return -numbers[0]
    left, right = numbers
    whole = isinstance(left, int) and isinstance(right, int)
    if not whole and not all(map(isfinite, numbers)):
        raise Unsolvable("calculates with infinity")
    if (compare := _COMPARE.get(expr.function)) is not None:
        return compare(left, right) if whole else compare(exact_number(left), exact_number(right))
    if right == 0 and expr.function in ("/", "//", "%"):
        raise Unsolvable("divides by zero")
    if isinstance(left, int) and isinstance(right, int) and expr.function != "/":
        return _COMPUTE[expr.function](left, right)
    return rational(_EXACT[expr.function](exact_number(left), exact_number(right)))


class Unknowns(Protocol[V]):
    """The known sizes of one call, in one domain of values."""

    def value(self, expr: Expr, /) -> V | None:
        """The value of an expression; None if something in it is unknown."""

    def determine(self, key: str, value: V, /) -> bool:
        """Records the value of an unknown. False if this domain has no such unknown."""

    def inverse(self, function: str, result: V, given: V, unknown: Expr, /) -> V | None:
        """The unknown operand of `+`, `*` or `neg`, from the result and the other operand (for `neg` the result).

        None if it is not determined. Raises the domain's own error if there is no solution.
        """


def determine(condition: Expr, unknowns: Unknowns[V]) -> bool:
    """Whether the condition is an equation that determines an unknown. If so, the value is recorded."""
    if not (isinstance(condition, Apply) and condition.function == "=="):
        return False
    left, right = condition.arguments
    for side, other in ((left, right), (right, left)):
        value = unknowns.value(other)
        if value is not None and unknowns.value(side) is None and _invert(side, value, unknowns):
            return True
    return False


def _invert(expr: Expr, value: V, unknowns: Unknowns[V]) -> bool:
    """Inverts the arithmetic around the one unknown of `expr` in `expr == value`. False if that is not possible."""
    key = unknown_key(expr)
    if key is not None:
        return unknowns.determine(key, value)
    if not isinstance(expr, Apply):
        return False
    if expr.function == "neg":
        unknown, found = expr.arguments[0], unknowns.inverse("neg", value, value, expr.arguments[0])
        return found is not None and _invert(unknown, found, unknowns)
    if expr.function not in ("+", "-", "*"):
        return False
    left, right = expr.arguments
    values = unknowns.value(left), unknowns.value(right)
    match expr.function, values:
        case "-", (None, given) if given is not None:  # x - given == value: x == value + given
            negated = unknowns.inverse("neg", given, given, left)
            found = None if negated is None else unknowns.inverse("+", value, negated, left)
            return found is not None and _invert(left, found, unknowns)
        case "-", (given, None) if given is not None:  # given - x == value: x == given - value
            found = unknowns.inverse("+", given, value, right)
            return found is not None and _invert(right, found, unknowns)
        case function, (None, given) if given is not None:
            found = unknowns.inverse(function, value, given, left)
            return found is not None and _invert(left, found, unknowns)
        case function, (given, None) if given is not None:
            found = unknowns.inverse(function, value, given, right)
            return found is not None and _invert(right, found, unknowns)
    return False


@dataclass(frozen=True)
class Numbers:
    """Unknowns over numbers. `known` is extended in place."""

    known: Environment

    def value(self, expr: Expr) -> Value | None:
        return value_of(expr, self.known)

    def determine(self, key: str, value: Value) -> bool:
        self.known[key] = value
        return True

    def inverse(self, function: str, result: Value, given: Value, unknown: Expr) -> Value:
        """See `Unknowns.inverse`. Raises Unsolvable if there is no integer solution."""
        if function == "neg":
            return -result
        total, part = exact_number(result), exact_number(given)
        if function == "+":
            return rational(total - part)
        if part == 0 or total % part != 0:
            raise Unsolvable(f"no whole number {' '.join(keys(unknown))} solves")
        return rational(total / part)


def propagate_all(conditions: Iterable[Expr], known: Environment, refuse: Callable[[Expr, Unsolvable], None]) -> None:
    """Extends `known` to a fixpoint. `refuse` is called with each equation without a solution."""
    unknowns: Unknowns[Value] = Numbers(known)
    progress = True
    while progress:
        progress = False
        for condition in conditions:
            try:
                progress |= determine(condition, unknowns)
            except Unsolvable as reason:
                refuse(condition, reason)


def solve_numbers(conditions: Sequence[Expr], known: Environment) -> bool:
    """Extends `known` by the conditions; returns whether all of them then hold."""
    unknowns: Unknowns[Value] = Numbers(known)
    try:
        while any(determine(condition, unknowns) for condition in conditions):
            pass
        return all(value_of(condition, known) is True for condition in conditions)
    except Unsolvable:
        return False


def counts(conditions: Iterable[Expr], attributes: Collection[str]) -> Iterator[tuple[str, str]]:
    """Pairs (attribute, size) that a condition equates."""
    for condition in conditions:
        match condition:
            case Apply("==", (Name(left), Name(right))):
                for attribute, size in ((right, left), (left, right)):
                    if attribute in attributes:
                        yield attribute, size


def defined_sizes(conditions: tuple[Expr, ...]) -> tuple[str, ...]:
    """Names that need not be a tensor's dimension, because a condition defines them.

    They stand alone on one side of an equation, as r in `r == window`, or are cofactors of degrees, as e in
    `d == p * e`.
    """
    equations = [c for c in conditions if isinstance(c, Apply) and c.function == "=="]
    sides = [side for equation in equations for side in equation.arguments]
    parts = [part for side in sides for part in ((side,) if isinstance(side, Name | Size) else _beside_degree(side))]
    return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, Name | Size) and not part.rest))


def _beside_degree(expr: Expr) -> tuple[Expr, ...]:
    """The other factor of a product with a degree, whose size is named `@p`."""
    if not (isinstance(expr, Apply) and expr.function == "*"):
        return ()
    left, right = expr.arguments
    return tuple(
        other
        for factor, other in ((left, right), (right, left))
        if isinstance(factor, Size) and factor.name.startswith("@")
    )


def mentions_rank(condition: Expr) -> bool:
    return any(isinstance(node, Apply) and node.function == "rank" for node in walk(condition))
