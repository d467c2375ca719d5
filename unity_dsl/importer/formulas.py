"""Formulas of sizes: the numbers of a text in terms of the sizes that change them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isclose

Point = Mapping[str, float]
"""Sizes by name."""
_TOKEN = re.compile(r'"[^"]*"|[A-Za-z_]\w*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\s+|.')
_POWERS = (1, -1, 2, -2)


@dataclass(frozen=True)
class Formula:
    """A coefficient times powers of sizes, plus a constant."""

    coefficient: Fraction
    powers: Mapping[str, int] = field(default_factory=dict)
    constant: int = 0

    def value(self, point: Point) -> Fraction:
        found = self.coefficient
        for name, power in self.powers.items():
            found *= Fraction(point[name]) ** power
        return found + self.constant

    def text(self, divide: str) -> str:
        """The formula as text, with this sign for divisions."""
        above = [name for name, power in self.powers.items() for _ in range(power)]
        below = [name for name, power in self.powers.items() for _ in range(-power)]
        count, part = abs(self.coefficient.numerator), self.coefficient.denominator
        factors = [str(count)] * (count != 1 or not above) + above
        product = f" {divide} ".join([" * ".join(factors), *below, *([str(part)] if part != 1 else [])])
        if self.constant == 0:
            return product if self.coefficient > 0 else f"-{product}"
        if self.coefficient < 0:
            return f"{self.constant} - {product}"
        return f"{product} {'+' if self.constant > 0 else '-'} {abs(self.constant)}"


def tokens(line: str) -> list[str]:
    """Words, numbers and signs of a line."""
    return _TOKEN.findall(line)


def number(token: str) -> float | int | None:
    """The number that a token is; None if it is none."""
    if not token[:1].isdigit():
        return None
    try:
        return int(token) if token.isdigit() else float(token)
    except ValueError:
        return None


def are_alike(lines: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two texts differ in numbers alone."""
    if len(lines) != len(others):
        return False
    for line, other in zip(lines, others, strict=True):
        one, two = tokens(line), tokens(other)
        if len(one) != len(two) or any(a != b and (number(a) is None or number(b) is None) for a, b in zip(one, two)):  # noqa: B905
            return False
    return True


def numbers(lines: Sequence[str]) -> Iterator[tuple[int, int, float]]:
    """The numbers of a text, each with its line and its position among the line's tokens."""
    for row, line in enumerate(lines):
        for place, token in enumerate(tokens(line)):
            found = number(token)
            if found is not None:
                yield row, place, found


def formula_of(value: float, changed: Mapping[str, float], at: Point, moved: Point) -> Formula | None:
    """The formula that gives `value` at a point, and each changed value where that size alone has moved: a product of
    powers, else a sum. None if there is none.
    """
    powers = {name: _power(other, value, moved[name], at[name]) for name, other in changed.items()}
    if all(powers.values()):
        known = {name: power for name, power in powers.items() if power is not None}
        product = Formula(Fraction(1), known).value(at)
        coefficient = Fraction(value) / product
        if isinstance(value, int):
            return Formula(coefficient, known)
        return Formula(Fraction(1), known) if isclose(coefficient, 1, rel_tol=1e-6) else None
    if len(changed) == 1 and isinstance(value, int):
        ((name, other),) = changed.items()
        slope = Fraction(other - value) / Fraction(moved[name] - at[name])
        constant = value - slope * Fraction(at[name])
        if slope.denominator == constant.denominator == 1:
            return Formula(slope, {name: 1}, int(constant))
    return None


def _power(other: float, value: float, moved: float, at: float) -> int | None:
    """The power of a size in a value, from two values of both; None if there is none."""
    if not value or not at:
        return None
    ratio = other / value
    return next((power for power in _POWERS if isclose(ratio, (moved / at) ** power, rel_tol=1e-6)), None)


def replaced(lines: Sequence[str], found: Mapping[tuple[int, int], Formula], divide: str) -> tuple[str, ...]:
    """The text with formulas in place of numbers, by line and token."""
    made = []
    for row, line in enumerate(lines):
        parts = tokens(line)
        made.append("".join(_written(parts, place, found.get((row, place)), divide) for place in range(len(parts))))
    return tuple(made)


def _written(parts: Sequence[str], place: int, formula: Formula | None, divide: str) -> str:
    """A token, or the formula in its place, in parentheses where it is an operand of another."""
    if formula is None:
        return parts[place]
    text = formula.text(divide)
    before, after = "".join(parts[:place]).rstrip()[-1:], "".join(parts[place + 1 :]).lstrip()[:1]
    return f"({text})" if {before, after} & {*"+-*/"} and not text.isidentifier() else text
