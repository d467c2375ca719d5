"""Rewrites scalar terms to smaller ones, equal over the reals.

Only artefacts of differentiation are simplified: zeros, ones, signs, quotients in products. Integer constants are
folded. `1 - p` at p = 0.1 stays, so that it can be printed by name.
"""

from __future__ import annotations

import operator

from ...syntax.ast import Apply, Expr, Number, Select, Uniform
from .term import COMPARISONS, call, rewrite

ZERO = Number(0)
ONE = Number(1)


def simplify(expr: Expr) -> Expr:
    """An equal term over the reals without neutral elements and double signs."""
    return rewrite(expr, _step)


def decide_draws(expr: Expr) -> Expr:
    """The term in which comparisons of a random number with a constant outside (0, 1) are decided.

    A dropout of probability 0 then draws no numbers.
    """
    found = rewrite(expr, _decided)
    return expr if found == expr else simplify(found)


def _decided(node: Expr) -> Expr:
    match node:
        case Apply(function, (Uniform(), Number(bound))) if function in _DECIDED:
            if bound <= 0 or bound >= 1:
                return Number(int(_DECIDED[function](0.5, bound)))
        case Select(Number(holds), then, otherwise):
            return then if holds else otherwise
    return node


_DECIDED = {">=": operator.ge, "<": operator.lt}
"""Comparisons that have one result for all numbers in [0, 1) if the bound is outside (0, 1)."""


def _step(node: Expr) -> Expr:
    """One simplification of a node with simple children; the result is simple."""
    match node:
        case Apply("+", (left, right)):
            return _plus(left, right)
        case Apply("-", (left, right)):
            return _minus(left, right)
        case Apply("neg", (argument,)):
            return _negative(argument)
        case Apply("*", (left, right)):
            return _times(left, right)
        case Apply("/", (left, right)):
            return _over(left, right)
        case Apply(function, (left, right)) if function in COMPARISONS and left == right:
            return ONE if function in ("==", "<=", ">=") else ZERO
        case Select(_, then, otherwise) if then == otherwise:
            return then
    return node


def _integers(*parts: Expr) -> bool:
    return all(isinstance(part, Number) and isinstance(part.value, int) for part in parts)


def _plus(left: Expr, right: Expr) -> Expr:
    match left, right:
        case (Number(a), Number(b)) if _integers(left, right):
            return Number(a + b)
        case (Number(0), _):
            return right
        case (_, Number(0)):
            return left
        case (_, Apply("neg", (argument,))):
            return _minus(left, argument)
        case (Apply("neg", (argument,)), _):
            return _minus(right, argument)
        case (_, Number(b)) if b < 0:
            return call("-", left, Number(-b))
    return _times(Number(2), left) if left == right else call("+", left, right)


def _minus(left: Expr, right: Expr) -> Expr:
    match left, right:
        case (Number(a), Number(b)) if _integers(left, right):
            return Number(a - b)
        case (_, Number(0)):
            return left
        case (Number(0), _):
            return _negative(right)
        case (_, Apply("neg", (argument,))):
            return _plus(left, argument)
        case (Apply("+", (first, second)), _) if right in (first, second):
            return second if right == first else first
    return ZERO if left == right else call("-", left, right)


def _negative(argument: Expr) -> Expr:
    match argument:
        case Number(value):
            return Number(-value)
        case Apply("neg", (inner,)):
            return inner
        case Apply("-", (left, right)):
            return _minus(right, left)
    return call("neg", argument)


def _times(left: Expr, right: Expr) -> Expr:
    match left, right:
        case (Number(a), Number(b)) if _integers(left, right):
            return Number(a * b)
        case (Number(0), _) | (_, Number(0)):
            return ZERO
        case (Number(1), _):
            return right
        case (_, Number(1)):
            return left
        case (Apply("neg", (argument,)), _):
            return _negative(_times(argument, right))
        case (_, Apply("neg", (argument,))):
            return _negative(_times(left, argument))
        case (_, Number(a)) if a < 0:
            return _negative(_times(left, Number(-a)))
        # A factor moves into a branch, so that it may be infinite where the other branch is taken.
        case (_, Select(condition, then, Number(0))):
            return Select(condition, _times(left, then), ZERO)
        case (Select(condition, then, Number(0)), _):
            return Select(condition, _times(then, right), ZERO)
        case (_, Apply("*", (first, second))):
            return _times(_times(left, first), second)
        case (_, Apply("/", (first, second))):
            return _over(_times(left, first), second)
    return call("*", left, right)


def _over(left: Expr, right: Expr) -> Expr:
    match left, right:
        case (_, Number(1)):
            return left
        case (Number(0), _):
            return ZERO
        case (Apply("neg", (argument,)), _):
            return _negative(_over(argument, right))
        case (_, Apply("neg", (argument,))):
            return _negative(_over(left, argument))
        case (Select(condition, then, Number(0)), _):
            return Select(condition, _over(then, right), ZERO)
    return call("/", left, right)
