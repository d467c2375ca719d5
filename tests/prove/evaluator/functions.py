"""Functions of the independent evaluator: exact rationals where possible, else enclosing intervals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import inf, isqrt
from typing import Any

from mpmath import libmp
from mpmath.libmp import libmpi

from .values import (
    PRECISION,
    UNKNOWN,
    Interval,
    Value,
    compared,
    floored,
    greater,
    interval,
    is_exact,
    lesser,
    made,
    minus,
    negated,
    origin,
    over,
    plus,
    remainder,
    sign,
    times,
)

LARGEST = 1 << 20
"""Greatest absolute value whose exponential, sine or cosine is computed; beyond it the result is UNKNOWN."""


def _apart(value: Value) -> bool:
    """Whether functions pass a value through unchanged: None or UNKNOWN."""
    return value is None or value is UNKNOWN


def _beyond(value: Value) -> bool:
    return any(libmp.mpf_gt(libmp.mpf_abs(end), libmp.from_int(LARGEST)) for end in interval(value))


def exponential(value: Value) -> Value:
    if _apart(value):
        return value
    if isinstance(value, float):
        return 0 if value < 0 else inf
    if is_exact(value) and value == 0:
        return 1
    return UNKNOWN if _beyond(value) else made(libmpi.mpi_exp(interval(value), PRECISION), "exp", origin(value))


def logarithm(value: Value) -> Value:
    """The logarithm of a positive value, else None: also at 0, where NumPy gives minus infinity."""
    if _apart(value):
        return value
    of = sign(value)
    if of is None:
        return UNKNOWN
    if of <= 0:
        return None
    if isinstance(value, float):
        return value
    if is_exact(value) and value == 1:
        return 0
    return made(libmpi.mpi_log(interval(value), PRECISION), "log", origin(value))


def root(value: Value) -> Value:
    if _apart(value):
        return value
    of = sign(value)
    if of is None:
        return UNKNOWN
    if of < 0:
        return None
    if isinstance(value, float):
        return value
    if isinstance(value, int | Fraction):
        found = Fraction(isqrt(value.numerator), isqrt(value.denominator))
        if found * found == value:
            return found
    return made(libmpi.mpi_sqrt(interval(value), PRECISION), "sqrt", origin(value))


def power(base: Value, exponent: Value) -> Value:
    """The power as in NumPy: None for a negative base with a fractional exponent and for 0 with a negative one."""
    if base is None or exponent is None:
        return None
    if not isinstance(exponent, int | Fraction) or not isinstance(base, int | Fraction | Interval):
        return _of_exponential(base, exponent)
    if exponent == 0:
        return 1
    if exponent.denominator == 1 and abs(exponent) <= 64:
        if isinstance(base, Interval):
            whole = abs(int(exponent))
            found = made(libmpi.mpi_pow_int(base.pair, whole, PRECISION), "pow", base.origin, whole)
            return found if exponent > 0 else over(1, found)
        return None if base == 0 and exponent < 0 else Fraction(base) ** int(exponent)
    if exponent == Fraction(1, 2):
        return root(base)
    return _of_exponential(base, exponent)


def _of_exponential(base: Value, exponent: Value) -> Value:
    if _apart(base) or _apart(exponent) or isinstance(base, float) or isinstance(exponent, float):
        return UNKNOWN
    of = sign(base)
    if of == 0:
        other = sign(exponent)
        return UNKNOWN if other is None else None if other < 0 else int(other == 0)
    if of == 1:
        return exponential(times(exponent, logarithm(base)))
    return None if of == -1 and isinstance(exponent, Fraction) and exponent.denominator != 1 else UNKNOWN


def absolute(value: Value) -> Value:
    if isinstance(value, Interval):
        return made(libmpi.mpi_abs(value.pair, PRECISION), "abs", value.origin)
    return value if _apart(value) else abs(value)  # type: ignore[arg-type]


def _is_inner(value: Value) -> bool:
    """Whether an argument of a sigmoid-shaped function is a finite number other than 0."""
    return not (_apart(value) or isinstance(value, float) or (is_exact(value) and value == 0))


def _end_value(value: Value) -> Value:
    """The value of an odd sigmoid-shaped function at 0 and at the infinities. None and UNKNOWN are passed through."""
    if _apart(value):
        return value
    return (1 if value > 0 else -1) if isinstance(value, float) else 0


def hyperbolic_tangent(value: Value) -> Value:
    """tanh, computed as 1 - 2 / (exp(2 x) + 1)."""
    if not _is_inner(value):
        return _end_value(value)
    return minus(1, over(2, plus(exponential(times(2, value)), 1)))


def error_function(value: Value) -> Value:
    """erf, evaluated at the ends of the argument's interval as it increases. 20 extra bits absorb the rounding."""
    if not _is_inner(value):
        return _end_value(value)
    low, high = interval(value)
    slack = libmp.from_man_exp(1, -PRECISION)
    ends = [libmp.mpf_erf(end, PRECISION + 20) for end in (low, high)]
    around = libmp.mpf_sub(ends[0], slack, PRECISION, "f"), libmp.mpf_add(ends[1], slack, PRECISION, "c")
    return made(around, "erf", origin(value))


def _turning(part: int, at_zero: int) -> Callable[[Value], Value]:
    """Cosine (part 0) or sine (part 1) of the pair that mpmath computes together."""

    def computed(value: Value) -> Value:
        if _apart(value):
            return value
        if isinstance(value, float):
            return None
        if is_exact(value) and value == 0:
            return at_zero
        if _beyond(value):
            return UNKNOWN
        pairs: Any = libmpi.mpi_cos_sin(interval(value), PRECISION)
        return made(pairs[part], "turn", part, origin(value))

    return computed


def floor(value: Value) -> Value:
    return floored(value, 1)


def signum(value: Value) -> Value:
    if _apart(value):
        return value
    of = sign(value)
    return UNKNOWN if of is None else of


ARITHMETIC: dict[str, Callable[..., Value]] = {
    "+": plus,
    "-": minus,
    "*": times,
    "/": over,
    "//": floored,
    "%": remainder,
    "neg": negated,
}
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
for _relation in COMPARISONS:
    ARITHMETIC[_relation] = lambda left, right, _relation=_relation: compared(_relation, left, right)

PRIMITIVES: dict[str, Callable[..., Value]] = {
    "np.exp": exponential,
    "np.log": logarithm,
    "np.sqrt": root,
    "np.power": power,
    "np.abs": absolute,
    "np.tanh": hyperbolic_tangent,
    "math.erf": error_function,
    "np.cos": _turning(0, 1),
    "np.sin": _turning(1, 0),
    "np.maximum": greater,
    "np.minimum": lesser,
    "np.floor": floor,
    "np.sign": signum,
    "np.expm1": lambda value: minus(exponential(value), 1),
    "np.log1p": lambda value: logarithm(plus(value, 1)),
    "np.reciprocal": lambda value: over(1, value),
    "np.negative": negated,
}
"""The functions that the `numpy:` line of an element function may name."""
