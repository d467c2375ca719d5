"""The evaluator's arithmetic against the rules of the extended reals and against NumPy's float64."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isfinite, nan
from random import Random
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import libmp

from .functions import ARITHMETIC, PRIMITIVES
from .values import UNKNOWN, Interval, Value, agree, certainly_differ, compared, greatest, least, order, total

NUMPY: dict[str, Any] = {
    "np.exp": np.exp,
    "np.log": np.log,
    "np.sqrt": np.sqrt,
    "np.power": np.power,
    "np.abs": np.abs,
    "np.tanh": np.tanh,
    "np.cos": np.cos,
    "np.sin": np.sin,
    "np.maximum": np.maximum,
    "np.minimum": np.minimum,
    "np.floor": np.floor,
    "np.sign": np.sign,
    "np.expm1": np.expm1,
    "np.log1p": np.log1p,
    "np.reciprocal": np.reciprocal,
    "np.negative": np.negative,
    "math.erf": lambda x: float(mpmath.erf(float(x))),
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "neg": np.negative,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
TWO = ("np.power", "np.maximum", "np.minimum", *(name for name in ARITHMETIC if name != "neg"))


def as_float(value: Value) -> float:
    """The middle of an interval; NaN where there is no value."""
    if value is None:
        return nan
    assert value is not UNKNOWN
    if isinstance(value, Interval):
        assert value.sharp
        return float(libmp.to_float(value.low))
    return float(value)


def test_every_function_is_compared() -> None:
    assert set(NUMPY) == {*ARITHMETIC, *PRIMITIVES}


@pytest.mark.parametrize("name", NUMPY)
def test_finite_values_are_those_of_numpy(name: str) -> None:
    random = Random(name)
    found = 0
    for _ in range(200):
        exact = [Fraction(random.randint(-64, 64), random.choice((1, 1, 2, 8))) for _ in range(1 + (name in TWO))]
        with np.errstate(all="ignore"):
            expected = float(NUMPY[name](*(np.float64(float(value)) for value in exact)))
        value = (PRIMITIVES.get(name) or ARITHMETIC[name])(*exact)
        if not isfinite(expected):
            assert value is None, f"{name}{exact}"
            continue
        found += 1
        assert as_float(value) == pytest.approx(expected, rel=1e-12, abs=1e-12), f"{name}{exact}"
    assert found > 50


def of(name: str, *values: Value) -> Value:
    return (PRIMITIVES.get(name) or ARITHMETIC[name])(*values)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("+", (inf, -inf), None),
        ("+", (inf, -(10**30)), inf),
        ("-", (inf, inf), None),
        ("-", (-inf, inf), -inf),
        ("*", (0, inf), None),
        ("*", (-2, inf), -inf),
        ("*", (None, 0), None),
        ("/", (3, inf), 0),
        ("/", (inf, inf), None),
        ("/", (-inf, -2), inf),
        ("/", (0, 0), None),
        ("/", (1, 0), None),
        ("//", (-7, 2), -4),
        ("//", (7, -2), -4),
        ("%", (-7, 2), 1),
        ("%", (7, -2), -1),
        ("%", (7, 0), None),
        ("neg", (-inf,), inf),
        ("==", (inf, inf), 1),
        (">", (inf, 10**400), 1),
        (">", (None, 0), 0),
        ("!=", (None, None), 1),
        ("==", (None, None), 0),
        ("np.exp", (-inf,), 0),
        ("np.exp", (inf,), inf),
        ("np.exp", (0,), 1),
        ("np.log", (0,), None),
        ("np.log", (-1,), None),
        ("np.log", (inf,), inf),
        ("np.log", (1,), 0),
        ("np.sqrt", (-1,), None),
        ("np.sqrt", (Fraction(9, 4),), Fraction(3, 2)),
        ("np.power", (-2, 3), -8),
        ("np.power", (-2, Fraction(1, 3)), None),
        ("np.power", (0, -1), None),
        ("np.power", (0, 0), 1),
        ("np.power", (Fraction(1, 2), -2), 4),
        ("np.tanh", (-inf,), -1),
        ("math.erf", (inf,), 1),
        ("np.sin", (inf,), None),
        ("np.maximum", (None, 3), None),
        ("np.maximum", (-inf, 3), 3),
        ("np.minimum", (-inf, 3), -inf),
    ],
)
def test_extended_arithmetic(name: str, values: tuple[Value, ...], expected: Value) -> None:
    assert of(name, *values) == expected


def test_of_nothing_the_greatest_is_minus_infinity() -> None:
    assert greatest(()) == -inf and least(()) == inf and total(()) == 0
    assert greatest((1, None)) is None and greatest((-inf, 2, inf)) == inf


def test_intervals_tell_numbers_apart_and_numbers_of_one_origin_are_equal() -> None:
    one, other = of("np.exp", 1), of("np.exp", Fraction(10**50 + 1, 10**50))
    assert order(one, other) == -1 and certainly_differ(one, other)
    assert compared("==", of("np.exp", 1), of("np.exp", 1)) == 1
    assert order(of("np.exp", -1), of("np.exp", -2)) == 1
    product = of("*", of("np.sqrt", 2), of("np.sqrt", 2))
    assert compared("==", product, 2) is UNKNOWN and agree(product, 2) and not certainly_differ(product, 2)
    assert certainly_differ(1, None) and not certainly_differ(None, 1) and not certainly_differ(UNKNOWN, 1)


def test_what_is_too_large_is_not_known() -> None:
    assert of("np.exp", 10**9) is UNKNOWN and of("np.sin", 10**9) is UNKNOWN
    assert of("//", of("*", of("np.sqrt", 2), of("np.sqrt", 2)), 2) is UNKNOWN and of("/", UNKNOWN, 0) is None
    assert of("//", of("np.exp", 1), 1) == 2 and of("//", of("np.tanh", -3), 1) == -1
