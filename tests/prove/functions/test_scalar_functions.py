"""The normal form of a scalar expression has the expression's value, wherever the expression has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.index.exact import PRIMITIVES, exact
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.prove.decision.integer_arithmetic import Arithmetic
from unity_dsl.prove.decision.signs import Sign
from unity_dsl.prove.functions.fact_laws import laws_of
from unity_dsl.prove.functions.scalar_functions import Functions
from unity_dsl.prove.normal_form.form import Atom, Element, Extremum, Form, Function, Unsupported, atom
from unity_dsl.syntax.ast import Apply, Expr, Name, Number

LIBRARY = load_library()
NAMES = ("a", "b", "c")
UNARY = ("exp", "log", "sqrt", "rsqrt", "erf", "tanh", "sigmoid", "sin", "cos", "abs", "relu", "neg")
BINARY = ("+", "-", "*", "/", "maximum", "minimum", "<", ">=", "==")
NEAR = (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-3, 2), Fraction(2), Fraction(-2))

leaves = st.sampled_from(NAMES).map(Name) | st.sampled_from((0, 1, 2, -1, 0.5, 3)).map(Number)


def applied(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    one = st.builds(lambda name, x: Apply(name, (x,)), st.sampled_from(UNARY), inner)
    two = st.builds(lambda name, x, y: Apply(name, (x, y)), st.sampled_from(BINARY), inner, inner)
    # Arguments that facts are about: the same argument twice, its negative, its inverse, its square.
    twice = st.builds(lambda name, x: Apply(name, (x, x)), st.sampled_from(("+", "*", "/", "maximum")), inner)
    inverse = st.builds(lambda x: Apply("/", (Number(1), x)), inner)
    return one | two | twice | inverse


expressions = st.recursive(leaves, applied, max_leaves=7)
points = st.fixed_dictionaries(
    {name: st.sampled_from(NEAR) | st.fractions(-3, 3, max_denominator=97) for name in NAMES}
)


def worth(form: Form, names: Mapping[str, Any]) -> Any:
    """The numeric value of a form without indices."""
    total = mpmath.mpf(0)
    for term in form:
        assert not term.bound and not term.guards and term.coefficient.constant is not None
        part = mpmath.mpf(term.coefficient.constant.numerator) / term.coefficient.constant.denominator
        for factor, power in term.factors:
            part *= atom_worth(factor, names) ** power
        total += part
    return total


def atom_worth(factor: Atom, names: Mapping[str, Any]) -> Any:
    match factor:
        case Element(tensor):
            return names[tensor]
        case Extremum(families):
            return max(worth(family.value, names) for family in families)
        case Function(name, arguments):
            return BUILT_IN.get(name, primitive(name))(*(worth(argument, names) for argument in arguments))


def primitive(name: str) -> Callable[..., Any]:
    decl = LIBRARY.functions.get(name.removeprefix("fn "))
    return PRIMITIVES[decl.numpy.function] if decl is not None and decl.numpy is not None else (lambda *_: None)


BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "inv": lambda x: 1 / x,
    "positive": lambda x: mpmath.mpf(x > 0),
    "not_negative": lambda x: mpmath.mpf(x >= 0),
    "zero": lambda x: mpmath.mpf(x == 0),
}


def number_at(expr: Expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression. The example is dropped if the expression or a part of it has no value.

    The logarithm of zero has no value, although mpmath continues with an infinity.
    """
    for part in expr.arguments if isinstance(expr, Apply) else ():
        number_at(part, names)
    try:
        value = mpmath.mpmathify(exact(expr, names, LIBRARY.functions))
    except (ZeroDivisionError, ValueError, OverflowError, TypeError):
        value = mpmath.nan
    assume(mpmath.isfinite(value) and mpmath.im(value) == 0)
    return value


@given(expressions, points)
@settings(max_examples=200)
def test_the_normal_form_has_the_value_of_the_expression(expr: Expr, point: dict[str, Fraction]) -> None:
    functions = Functions(laws_of(LIBRARY), Arithmetic())
    try:
        form = functions.value(expr, {name: atom(Element(name, ())) for name in NAMES})
    except Unsupported:
        assume(False)
        return
    with mpmath.workdps(60):
        names = {name: mpmath.mpf(value.numerator) / value.denominator for name, value in point.items()}
        expected = number_at(expr, names)
        found = worth(form, names)
        assert abs(found - expected) <= mpmath.mpf(10) ** -30 * max(1, abs(expected)), (form, found, expected)


@given(expressions, points.map(lambda point: point | {"a": abs(point["a"]) or Fraction(1, 3), "b": abs(point["b"])}))
@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_a_sign_that_is_known_is_that_of_the_value(expr: Expr, point: dict[str, Fraction]) -> None:
    functions = Functions(laws_of(LIBRARY), Arithmetic(), {"a": Sign.POSITIVE, "b": Sign.NOT_NEGATIVE})
    try:
        form = functions.value(expr, {name: atom(Element(name, ())) for name in NAMES})
        sign = functions.signs.form(form)
    except Unsupported:
        assume(False)
        return
    assume(sign is not Sign.UNKNOWN)
    with mpmath.workdps(60):
        names = {name: mpmath.mpf(value.numerator) / value.denominator for name, value in point.items()}
        expected = number_at(expr, names)
        assume(not isinstance(expected, mpmath.mpc))  # from the logarithm of a negative number, so without a value
        assert expected > 0 if sign is Sign.POSITIVE else expected >= -(mpmath.mpf(10) ** -30)
