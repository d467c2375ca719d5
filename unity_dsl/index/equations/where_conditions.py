"""`where` conditions at a call: unknown sizes and ranks are solved forward, then every condition is checked.

An environment maps what is known to its number: sizes and attributes by name, `b..` (the product of rest axes) and
`rank(f)`. A condition with one unknown, in a place where arithmetic can be undone, determines it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ...syntax.ast import Apply, Expr, Name, Number, Size
from .term import children, walk

Value = int | float
Environment = dict[str, Value]


class Unsolvable(Exception):
    """An equation has no solution in whole numbers. The first argument says why."""


_COMPARE: Mapping[str, Callable[[Value, Value], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPUTE: Mapping[str, Callable[[Value, Value], Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def unknown_key(expr: Expr) -> str | None:
    """The environment's key of a leaf: `c`, `b..` or `rank(f)`; None for anything else."""
    match expr:
        case Name(name, rest) | Size(name, rest):
            return f"{name}.." if rest else name
        case Apply("rank", (Name(name),)):
            return f"rank({name})"
        case _:
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
    """The number an expression of sizes and attributes is worth, or None where something in it is unknown."""
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
    if expr.function in _COMPARE:
        return _COMPARE[expr.function](left, right)
    if expr.function in ("/", "//", "%") and right == 0:
        raise Unsolvable("divides by zero")
    if expr.function == "/":
        whole = isinstance(left, int) and isinstance(right, int) and left % right == 0
        return left // right if whole else left / right
    return _COMPUTE[expr.function](left, right)


def propagate(condition: Expr, known: Environment) -> bool:
    """Extend `known` by what an equation with one unknown determines. Whether it did. Raises Unsolvable."""
    if not (isinstance(condition, Apply) and condition.function == "=="):
        return False
    left, right = condition.arguments
    for side, other in ((left, right), (right, left)):
        value = value_of(other, known)
        if value is not None and value_of(side, known) is None and _solve(side, value, known):
            return True
    return False


def propagate_all(conditions: Iterable[Expr], known: Environment, refuse: Callable[[Expr, Unsolvable], None]) -> None:
    """Extend `known` until nothing more follows. `refuse` is told of each equation without a solution."""
    progress = True
    while progress:
        progress = False
        for condition in conditions:
            try:
                progress |= propagate(condition, known)
            except Unsolvable as reason:
                refuse(condition, reason)


def counts(conditions: Iterable[Expr], attributes: Collection[str]) -> Iterator[tuple[str, str]]:
    """Attributes that a condition sets equal to a size, each with that size's name: `g == groups`."""
    for condition in conditions:
        match condition:
            case Apply("==", (Name(left), Name(right))):
                for attribute, size in ((right, left), (left, right)):
                    if attribute in attributes:
                        yield attribute, size


def _solve(expr: Expr, value: Value, known: Environment) -> bool:
    """Undo arithmetic around the one unknown of `expr`, so that `expr == value`. False where that cannot be done."""
    key = unknown_key(expr)
    if key is not None:
        known[key] = value
        return True
    if not isinstance(expr, Apply):
        return False
    if expr.function == "neg":
        return _solve(expr.arguments[0], -value, known)
    left, right = expr.arguments
    left_value, right_value = value_of(left, known), value_of(right, known)
    if left_value is None and right_value is not None:
        unknown, given = left, right_value
    elif left_value is not None and right_value is None:
        unknown, given = right, left_value
    else:
        return False
    if expr.function == "+":
        return _solve(unknown, value - given, known)
    if expr.function == "-":
        return _solve(unknown, value + given if unknown is left else given - value, known)
    return expr.function == "*" and _solve(unknown, _quotient(value, given, unknown), known)


def _quotient(value: Value, factor: Value, unknown: Expr) -> Value:
    if factor == 0 or value % factor != 0:
        raise Unsolvable(f"no whole number {' '.join(keys(unknown))} solves")
    return value // factor


def defined_sizes(conditions: tuple[Expr, ...]) -> tuple[str, ...]:
    """Names that need be no tensor's dimension: those that stand alone on one side of an equation, as r in
    `r == window`, and what a degree leaves of a size, as e in `d == p * e`.
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
