"""Solves equations between sizes of tensors, which are polynomials over positive integers, by substitution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd

from ...prove.normal_form.polynomial import ONE, Poly, is_plainly_not_negative, of
from ...prove.normal_form.step_limit import spend


class Contradiction(Exception):
    """Sizes that must be equal differ at all values. The first argument says which."""


@dataclass
class Sizes:
    """Variables created so far, the values that equations determine, and equations that are still open.

    A value is a polynomial with positive coefficients, so it is positive for every choice of the remaining variables.
    The substitution therefore neither loses nor adds solutions.
    """

    values: dict[str, Poly] = field(default_factory=dict)
    open: list[Poly] = field(default_factory=list)
    order: dict[str, int] = field(default_factory=dict)

    def fresh(self, hint: str) -> Poly:
        """A new variable named after the hint; further variables with the same hint are numbered from 2."""
        name, count = hint, 1
        while name in self.order:
            count += 1
            name = f"{hint}{count}"
        self.order[name] = len(self.order)
        return of(name)

    def value(self, size: Poly) -> Poly:
        """A size with all variables replaced whose values are known."""
        while known := [symbol for symbol in size.symbols() if isinstance(symbol, str) and symbol in self.values]:
            size = size.with_size(known[0], self.values[known[0]])
        return size

    def equal(self, left: Poly, right: Poly) -> None:
        """Adds an equation and substitutes all values that follow. Raises Contradiction, and OutOfSteps."""
        self.open.append(left - right)
        self._settle()

    def _settle(self) -> None:
        while True:
            self.open = [poly for poly in (_primitive(self.value(poly)) for poly in self.open) if poly.terms]
            for poly in self.open:
                if is_plainly_not_negative(poly - ONE) or is_plainly_not_negative(-poly - ONE):
                    raise Contradiction("sizes differ whatever they are")
            found = next(filter(None, map(self._solved, self.open)), None) or self._eliminated()
            if found is None:
                return
            self.values[found[0]] = found[1]

    def _linear(self, poly: Poly) -> Iterator[tuple[str, Poly]]:
        """Each variable that occurs once and linearly, with coefficient 1 or -1, and its value by the equation."""
        names = {symbol for symbol in poly.symbols() if isinstance(symbol, str)}
        for name in sorted(names, key=self.order.__getitem__, reverse=True):
            factor = poly.coefficient(name)
            if factor in (1, -1):
                yield name, (of(name).scaled(Fraction(factor)) - poly).scaled(Fraction(factor))

    def _solved(self, poly: Poly) -> tuple[str, Poly] | None:
        """A variable whose value has only positive coefficients; the last created one if there are several."""
        spend()
        return next((found for found in self._linear(poly) if all(c > 0 for _, c in found[1].terms)), None)

    def _eliminated(self) -> tuple[str, Poly] | None:
        """Like `_solved`, after substituting one equation into another: `a + b == c + d` and `a + d == c + b` give `b
        == d`.
        """
        for place, poly in enumerate(self.open):
            for name, value in self._linear(poly):
                for other in (*self.open[:place], *self.open[place + 1 :]):
                    spend()
                    rest = _primitive(other.with_size(name, value))
                    found = self._solved(rest) if rest.terms else None
                    if found is not None:
                        return found
        return None


def _primitive(poly: Poly) -> Poly:
    """The equation `poly == 0` without common factors; sizes are not 0."""
    if not poly.terms:
        return poly
    common = dict(poly.terms[0][0])
    for monomial, _ in poly.terms[1:]:
        powers = dict(monomial)
        common = {symbol: min(power, powers[symbol]) for symbol, power in common.items() if symbol in powers}
    content = gcd(*(coefficient.numerator for _, coefficient in poly.terms))
    divisor = Poly(((tuple((symbol, -power) for symbol, power in common.items()), Fraction(1, content)),))
    return poly * divisor
