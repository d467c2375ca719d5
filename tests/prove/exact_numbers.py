"""Numbers of the independent checker: fractions, 100 digits where a function has no fraction, and no value.

A value is a Fraction, an mpf of 100 digits, an infinity (float) or None where there is no value: 0 / 0, log(-1), and
what is too large for 100 digits to tell from its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import inf, isqrt
from typing import TypeAlias

import mpmath

mpmath.mp.dps = 400
TOLERANCE = mpmath.mpf(10) ** -40
LARGEST_EXPONENT = 400
"""exp of more is not computed: sums with it would leave fewer than 40 of 400 digits."""


class TooLarge(Exception):
    """What cannot be computed with so many steps or digits."""


Value: TypeAlias = "Fraction | mpmath.mpf | float | None"


def decimal(value: int | float) -> Value:
    """A number as it is written."""
    return value if value in (inf, -inf) else Fraction(repr(value))


def real(value: Value) -> mpmath.mpf:
    """A finite value with 400 digits."""
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def same(left: Value, right: Value) -> bool:
    """Whether two values are equal; fractions exactly, others to 40 digits. No value is equal to no value alone."""
    if left is None or right is None:
        return left is right
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left == right
    if isinstance(left, float) or isinstance(right, float):
        return left == right
    first, second = real(left), real(right)
    return bool(abs(first - second) <= TOLERANCE * max(1, abs(first), abs(second)))


# ---------------------------------------------------------------------------------------------- arithmetic


def plus(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        infinite = {value for value in (left, right) if isinstance(value, float)}
        return infinite.pop() if len(infinite) == 1 else None
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left + right
    return real(left) + real(right)


def negated(value: Value) -> Value:
    return None if value is None else -value


def times(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return None if left == 0 or right == 0 else (inf if (left > 0) == (right > 0) else -inf)
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left * right
    return real(left) * real(right)


def over(left: Value, right: Value) -> Value:
    """The quotient; by zero it is no value."""
    if left is None or right is None or right == 0:
        return None
    if isinstance(right, float):
        return None if isinstance(left, float) else Fraction(0)
    return times(left, 1 / right)


def whole(function: Callable[[int, int], int]) -> Callable[[Value, Value], Value]:
    """Arithmetic of whole numbers: `//` and `%`."""

    def computed(left: Value, right: Value) -> Value:
        if left is None or right is None or right == 0:
            return None
        assert isinstance(left, Fraction) and isinstance(right, Fraction)
        return Fraction(function(left, right))  # type: ignore[arg-type]

    return computed


def compared(sign: str) -> Callable[[Value, Value], Value]:
    """1 or 0."""

    def truth(left: Value, right: Value) -> Value:
        if left is None or right is None:
            return None
        equal, less = same(left, right), exceeds(left, right, less=True)
        found = {
            "==": equal,
            "!=": not equal,
            "<": less and not equal,
            "<=": less or equal,
            ">": not less and not equal,
            ">=": not less or equal,
        }[sign]
        return Fraction(found)

    return truth


def greatest(values: Iterable[Value], least: bool = False) -> Value:
    """The greatest value, of none minus infinity; or the least, of none infinity."""
    found: Value = inf if least else -inf
    for value in values:
        if value is None:
            return None
        if exceeds(value, found, least):
            found = value
    return found


def exceeds(value: Value, other: Value, less: bool) -> bool:
    """Whether a value is greater, or less, than another."""
    if not isinstance(value, float) and not isinstance(other, float) and type(value) is not type(other):
        value, other = real(value), real(other)
    return bool(value < other if less else value > other)  # type: ignore[operator]


def total(values: Iterable[Value]) -> Value:
    found: Value = Fraction(0)
    for value in values:
        found = plus(found, value)
    return found


def multiplied(values: Iterable[Value]) -> Value:
    found: Value = Fraction(1)
    for value in values:
        found = times(found, value)
    return found


# ---------------------------------------------------------------------------------------------- functions


def exponential(value: Value) -> Value:
    if isinstance(value, float):
        return Fraction(0) if value < 0 else inf
    if value is None:
        return None
    if abs(value) > LARGEST_EXPONENT:
        raise TooLarge(f"exp of {float(value)}")
    return Fraction(1) if value == 0 else mpmath.exp(real(value))


def logarithm(value: Value) -> Value:
    if value is None or isinstance(value, float) or value <= 0:
        return None
    return Fraction(0) if value == 1 else mpmath.log(real(value))


def root(value: Value) -> Value:
    if value is None or isinstance(value, float) or value < 0:
        return None
    if isinstance(value, Fraction):
        exact = Fraction(isqrt(value.numerator), isqrt(value.denominator))
        if exact * exact == value:
            return exact
    return mpmath.sqrt(real(value))


def power(base: Value, exponent: Value) -> Value:
    if base is None or exponent is None or isinstance(base, float) or isinstance(exponent, float) or base < 0:
        return None
    if base == 0:
        return None if exponent < 0 else Fraction(exponent == 0)
    return exponential(times(exponent, logarithm(base)))


def analytic(function: Callable[[mpmath.mpf], mpmath.mpf], at_zero: int) -> Callable[[Value], Value]:
    """A function that is finite everywhere, and rational at zero."""

    def computed(value: Value) -> Value:
        if value is None or isinstance(value, float):
            return None
        return Fraction(at_zero) if value == 0 else function(real(value))

    return computed


def absolute(value: Value) -> Value:
    return None if value is None else abs(value)


PRIMITIVES: dict[str, Callable[..., Value]] = {
    "np.exp": exponential,
    "np.log": logarithm,
    "np.sqrt": root,
    "np.power": power,
    "np.tanh": analytic(mpmath.tanh, 0),
    "np.sin": analytic(mpmath.sin, 0),
    "np.cos": analytic(mpmath.cos, 1),
    "math.erf": analytic(mpmath.erf, 0),
    "np.abs": absolute,
    "np.maximum": lambda a, b: greatest((a, b)),
    "np.minimum": lambda a, b: greatest((a, b), least=True),
}
ARITHMETIC: dict[str, Callable[..., Value]] = {
    "+": plus,
    "-": lambda a, b: plus(a, negated(b)),
    "*": times,
    "/": over,
    "neg": negated,
    "//": whole(lambda a, b: a // b),
    "%": whole(lambda a, b: a % b),
    **{sign: compared(sign) for sign in ("==", "!=", "<", "<=", ">", ">=")},
}
