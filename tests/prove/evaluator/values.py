"""Numbers of the independent evaluator: exact rationals, intervals for irrational results, and infinities.

A value is an int, a Fraction, an `Interval` of reals, an infinity (float), None (no value) or `UNKNOWN`. `UNKNOWN` may
be any of the others: it results from comparing overlapping intervals, or from numbers too large to compute.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any, TypeAlias, TypeGuard

from mpmath import libmp
from mpmath.libmp import libmpi

PRECISION = 200
"""Precision of the ends of intervals, in bits."""
SHARP = libmp.from_man_exp(1, -60)
"""Greatest width of a sharp interval, relative to its magnitude if that exceeds 1."""

Exact: TypeAlias = int | Fraction


@dataclass(frozen=True)
class Interval:
    """An enclosure of a real number. The two ends are mpmath's raw floats.

    `origin` is a hash of the computation: intervals of the same origin are equal numbers, however wide they are.
    """

    low: Any
    high: Any
    origin: int

    @property
    def pair(self) -> tuple[Any, Any]:
        return self.low, self.high

    @property
    def sharp(self) -> bool:
        width = libmp.mpf_sub(self.high, self.low, 53, "u")
        ends = (libmp.mpf_abs(self.low), libmp.mpf_abs(self.high))
        size = ends[0] if libmp.mpf_gt(*ends) else ends[1]
        if libmp.mpf_lt(size, libmp.fone):
            size = libmp.fone
        return bool(libmp.mpf_le(width, libmp.mpf_mul(SHARP, size, 53, "d")))

    def __str__(self) -> str:
        return str(libmp.to_str(libmp.mpf_shift(libmp.mpf_add(self.low, self.high, 60), -1), 12))


class Unknown:
    """The class of `UNKNOWN`."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()

Value: TypeAlias = "int | Fraction | Interval | float | Unknown | None"


_MOST_BITS = 512
"""Most bits of a number that is printed in full. Python prints no integer of more than 4,300 digits."""


def number_text(value: Value) -> str:
    if value is None:
        return "no value"
    if is_exact(value) and max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        exponent = value.numerator.bit_length() - value.denominator.bit_length()
        return f"about {'-' if value < 0 else ''}2^{exponent}"
    return str(value)


def is_exact(value: Value) -> TypeGuard[Exact]:
    return isinstance(value, int | Fraction)


def interval(value: Value) -> Any:
    """A finite value as a pair of raw floats."""
    if isinstance(value, Interval):
        return value.low, value.high
    assert isinstance(value, int | Fraction)
    return tuple(libmp.from_rational(value.numerator, value.denominator, PRECISION, way) for way in "fc")


def made(pair: tuple[Any, Any], *origin: Any) -> Value:
    """The interval between a pair of raw floats, with the hash of its origin. UNKNOWN if an end is not finite."""
    low, high = pair
    return UNKNOWN if _special(low) or _special(high) else Interval(low, high, hash(origin))


def origin(value: Value) -> int:
    """A hash of how a number was computed; for an exact number, of its value."""
    if isinstance(value, Interval):
        return value.origin
    return 0x5BD1E995 if value == -1 else hash(value)  # Python hashes -1 and -2 alike


def _both(left: Value, right: Value) -> tuple[int, ...]:
    """The origins of two operands, sorted so that commutative operations have one origin in either order."""
    return tuple(sorted((origin(left), origin(right))))


def _special(end: Any) -> bool:
    return not end[1] and bool(end[2])


def sign(value: Value) -> int | None:
    """The sign, -1, 0 or 1; None for an interval that contains numbers of several signs."""
    if isinstance(value, Interval):
        return 1 if libmp.mpf_sign(value.low) > 0 else -1 if libmp.mpf_sign(value.high) < 0 else None
    assert isinstance(value, int | Fraction | float)
    return (value > 0) - (value < 0)


def literal(value: float) -> Value:
    """The exact value of a literal as it is written: `0.1` is a tenth."""
    if isinstance(value, int):
        return value
    return value if value in (inf, -inf) else Fraction(repr(value))


# ---------------------------------------------------------------------------------------------- arithmetic


def plus(left: Value, right: Value) -> Value:
    if type(left) is int and type(right) is int:
        return left + right
    if left is None or right is None:
        return None
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if isinstance(left, float) or isinstance(right, float):
        if isinstance(left, float) and isinstance(right, float):
            return left if left == right else None
        return left if isinstance(left, float) else right
    if isinstance(left, Interval) or isinstance(right, Interval):
        return made(libmpi.mpi_add(interval(left), interval(right), PRECISION), "+", *_both(left, right))
    return left + right  # type: ignore[operator]


def negated(value: Value) -> Value:
    if isinstance(value, Interval):
        return Interval(libmp.mpf_neg(value.high), libmp.mpf_neg(value.low), ~value.origin)
    return value if value is None or value is UNKNOWN else -value  # type: ignore[operator]


def minus(left: Value, right: Value) -> Value:
    return plus(left, negated(right))


def times(left: Value, right: Value) -> Value:
    """The product; None for 0 times an infinity."""
    if type(left) is int and type(right) is int:
        return left * right
    if left is None or right is None:
        return None
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if isinstance(left, float) or isinstance(right, float):
        signs = sign(left), sign(right)
        if signs[0] is None or signs[1] is None:
            return UNKNOWN
        return None if not signs[0] * signs[1] else inf * signs[0] * signs[1]
    if isinstance(left, Interval) or isinstance(right, Interval):
        if left == 0 or right == 0:
            return 0
        return made(libmpi.mpi_mul(interval(left), interval(right), PRECISION), "*", *_both(left, right))
    return left * right  # type: ignore[operator]


def over(left: Value, right: Value) -> Value:
    """The quotient; None for a division by zero and for two infinities."""
    if left is None or right is None:
        return None
    if left is UNKNOWN or right is UNKNOWN:
        return None if is_exact(right) and right == 0 else UNKNOWN
    if isinstance(right, float):
        return None if isinstance(left, float) else 0
    of = sign(right)
    if of == 0:
        return None
    if of is None:
        return UNKNOWN
    if isinstance(left, float):
        return left * of
    if isinstance(left, Interval) or isinstance(right, Interval):
        return made(libmpi.mpi_div(interval(left), interval(right), PRECISION), "/", origin(left), origin(right))
    assert is_exact(left) and is_exact(right)
    return Fraction(left) / right


def floored(left: Value, right: Value) -> Value:
    """`left // right`, rounded down."""
    if left is None or right is None or (is_exact(right) and right == 0):
        return None
    if is_exact(left) and is_exact(right):
        return left // right
    quotient = over(left, right)
    if not isinstance(quotient, Interval):
        return UNKNOWN
    ends = [int(libmp.to_int(end, "f")) for end in (quotient.low, quotient.high)]
    return ends[0] if ends[0] == ends[1] else UNKNOWN


def remainder(left: Value, right: Value) -> Value:
    """`left % right`, with the sign of `right`."""
    if left is None or right is None or (is_exact(right) and right == 0):
        return None
    if is_exact(left) and is_exact(right):
        return left % right
    return minus(left, times(right, floored(left, right)))


# ---------------------------------------------------------------------------------------------- order


def order(left: Value, right: Value) -> int | None:
    """-1, 0 or 1 if the left value is less, equal or greater; None if that is not certain. Neither may be None."""
    if left is UNKNOWN or right is UNKNOWN:
        return None
    if isinstance(left, Interval) or isinstance(right, Interval):
        if isinstance(left, float) or isinstance(right, float):
            return -1 if left == -inf or right == inf else 1
        (low, high), (least, most) = interval(left), interval(right)
        if libmp.mpf_lt(high, least):
            return -1
        if libmp.mpf_gt(low, most):
            return 1
        return 0 if origin(left) == origin(right) else None
    return (left > right) - (left < right)  # type: ignore[operator]


_HOLDS = {"==": (0,), "!=": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}


def compared(relation: str, left: Value, right: Value) -> Value:
    """1 or 0 by the order of the extended reals, or UNKNOWN. If an operand has no value, only `!=` holds."""
    if left is None or right is None:
        return int(relation == "!=")
    found = (left > right) - (left < right) if type(left) is int and type(right) is int else order(left, right)
    return UNKNOWN if found is None else int(found in _HOLDS[relation])


def greater(left: Value, right: Value) -> Value:
    """The greater of two."""
    if type(left) is int and type(right) is int:
        return left if left >= right else right
    if left is None or right is None:
        return None
    found = order(left, right)
    if found is not None:
        return left if found >= 0 else right
    if left is UNKNOWN or right is UNKNOWN:
        return inf if inf in (left, right) else UNKNOWN
    (low, high), (least, most) = interval(left), interval(right)
    ends = low if libmp.mpf_gt(low, least) else least, high if libmp.mpf_gt(high, most) else most
    return made(ends, "max", *_both(left, right))


def lesser(left: Value, right: Value) -> Value:
    return negated(greater(negated(left), negated(right)))


def certainly_differ(left: Value, right: Value) -> bool:
    """Whether the left side certainly has a value and the right side has a different value or none."""
    if left is None or left is UNKNOWN or right is UNKNOWN:
        return False
    return right is None or order(left, right) in (-1, 1)


def agree(left: Value, right: Value) -> bool:
    """Whether both sides have values that are equal, or that sharp intervals do not tell apart."""
    if left is None or right is None or left is UNKNOWN or right is UNKNOWN:
        return False
    if (isinstance(left, Interval) and not left.sharp) or (isinstance(right, Interval) and not right.sharp):
        return False
    return order(left, right) in (0, None)


# ---------------------------------------------------------------------------------------------- reductions


def total(values: Iterable[Value]) -> Value:
    found: Value = 0
    for value in values:
        found = plus(found, value)
    return found


def multiplied(values: Iterable[Value]) -> Value:
    found: Value = 1
    for value in values:
        found = times(found, value)
    return found


def greatest(values: Iterable[Value]) -> Value:
    """The greatest value; minus infinity if there are none."""
    found: Value = -inf
    for value in values:
        found = greater(found, value)
    return found


def least(values: Iterable[Value]) -> Value:
    """The least value; infinity if there are none."""
    found: Value = inf
    for value in values:
        found = lesser(found, value)
    return found
