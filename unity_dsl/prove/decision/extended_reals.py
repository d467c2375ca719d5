"""Semantics over the extended reals: which operations have no value, and which laws hold for infinite operands.

An expression has a real value, an infinite value, or no value. Elements of inputs are finite. Infinity comes from `inf`
and from maxima and minima of sets that may be empty. These expressions have no value:

    inf - inf     0 * inf     x / 0     a primitive outside its domain, sin(inf) (its `numpy:` line says so)

An expression with such an operand has no value either, except comparisons, which are then 0 (`!=` is 1), and `select`,
which does not evaluate the branch not taken. 1 / inf = 0, exp(-inf) = 0, exp(inf) = inf; max, min and comparisons
follow the order of the extended reals.

A rewriting e -> f is admissible if f has the value of e wherever e has one. It is a separate obligation that a sum or a
product of infinities has a value (functions/definedness.py). For operands that may be infinite these laws are used:

    A + B = B + A     (A + B) + C = A + (B + C)     A - A = 0     0 A = 0     2 A + 3 A = 5 A     (same for products)
    c (A + B) = c A + c B, where c is finite and not a sum     -inf + A = -inf     exp(A) exp(-A) = 1
    c inf = inf, where c is finite and positive
    max(max(A), B) = max(A with B)     c max(A) + t = max(c A + t), where c is finite and positive, and t is finite

These are not used. (c + d) A = c A + d A: its right side has no value at c = 2, d = -1, A = inf. f > 0 and f != 0: they
weaken to f >= 0 in the limit. a > b for a - b > 0. Any declared fact, since facts quantify over real numbers. A sum
that would be distributed over a possibly infinite factor becomes an atom named `sum`.

Two sides with equal coefficient functions (equality/form_equality.py) are equal wherever both have a value: there all
infinite terms of a side have one sign, so that the terms that cancel are finite.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

import numpy as np

from ...index.evaluation.native_calls import evaluate_native
from ...syntax.ast import FunctionDecl
from ..normal_form.form import (
    Form,
    Function,
    atom,
    function,
    infinities,
    is_finite,
    plain_sign,
    scale,
)
from ..normal_form.polynomial import number
from .signs import Sign, Signs

INFINITY = Function("inf", ())
TOP: Form = atom(INFINITY)
BOTTOM: Form = scale(TOP, number(-1))


def opposed(left: Form, right: Form) -> bool:
    """Whether two summands may be infinite with opposite signs."""
    first, second = infinities(left), infinities(right)
    return any(-sign in second for sign in first)


def undefined_sum(left: Form, right: Form) -> Function:
    """A function application that has a value exactly where the sum of the two forms has one."""
    parts = [tuple(term for term in form if term.infinities) for form in (left, right)]
    return _commutative("sum", *parts)


def undefined_product(left: Form, right: Form) -> Function:
    """A function application that has a value exactly where the product of the two forms has one."""
    return _commutative("product", left, right)


def _commutative(name: str, left: Form, right: Form) -> Function:
    made, turned = function(name, (left, right)), function(name, (right, left))
    return min(made, turned, key=lambda factor: factor.key)


def bracketed(form: Form) -> Form:
    """The sum as a single atom named `sum`, not distributed over."""
    single = len(form) < 2 and not any(term.bound for term in form)
    return form if single else atom(function("sum", [form]))


def infinite_product(left: Form, right: Form, signs: Signs) -> Form | None:
    """Infinity times a finite form of known sign, c inf = inf for c > 0; None for anything else."""
    exact, other = (left, right) if is_exact(left) else (right, left)
    if not is_exact(exact) or not is_finite(other):
        return None
    if signs.form(other) is Sign.POSITIVE:
        return exact
    below = signs.form(scale(other, number(-1))) is Sign.POSITIVE
    return scale(exact, number(-1)) if below else None


def absorbed(form: Form) -> Form:
    """The form reduced by -inf + A = -inf, where no term has guards."""
    for term in form:
        sign = plain_sign(term.coefficient)
        if sign and term.factors == ((INFINITY, 1),) and not term.bound and not term.guards:
            return TOP if sign > 0 else BOTTOM
    return form


def at_infinity(decl: FunctionDecl, sign: int) -> float | None:
    """The limit value of a unary primitive at an infinity, by its `numpy:` line; None where it has no value there."""
    if decl.numpy is None or len(decl.parameters) != 1:
        return None
    with np.errstate(all="ignore"):
        value = float(evaluate_native(decl.numpy, {decl.parameters[0]: np.asarray(sign * np.inf)}))
    return None if isnan(value) else value


def total_at(decl: FunctionDecl, arguments: Iterable[Form]) -> bool:
    """Whether a primitive that is total on the reals also has a value at the infinities of these arguments."""
    signs = {sign for argument in arguments for sign in infinities(argument)}
    return all(at_infinity(decl, sign) is not None for sign in signs)


def is_exact(form: Form) -> int:
    """1 or -1 for the constant plus or minus infinity, else 0."""
    return 1 if form == TOP else -1 if form == BOTTOM else 0
