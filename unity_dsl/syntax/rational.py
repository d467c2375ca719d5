"""Exact numbers: a float represents its shortest decimal, 0.1 for 1/10; other numbers are fractions.

Arithmetic on them is that of rational numbers. They become floats where they are evaluated or emitted.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite
from typing import TypeAlias

Rational: TypeAlias = int | float | Fraction
"""A whole number, a decimal (or infinity) as a float, or a fraction that no float represents: 1/3."""


def exact_number(value: Rational) -> Fraction:
    """The exact value of a finite number."""
    return value if isinstance(value, Fraction) else Fraction(value if isinstance(value, int) else repr(value))


def rational(value: Fraction) -> Rational:
    """The canonical form of a number: a whole number, a decimal, or else a fraction."""
    if value.denominator == 1:
        return int(value)
    nearest = float(value)
    return nearest if isfinite(nearest) and exact_number(nearest) == value else value


def plain_number(value: Rational) -> int | float:
    """A number as Python, NumPy and PyTorch calculate with it."""
    return float(value) if isinstance(value, Fraction) else value
