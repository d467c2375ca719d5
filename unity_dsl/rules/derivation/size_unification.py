"""Solves equations between sizes of a pattern and sizes of a term, and substitutes the solution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...prove.normal_form.polynomial import ONE, ZERO, Poly, Quotient, number, of, power_of, quotient

Sizes = dict[str, Poly]
"""The values of a pattern's names."""


class Unbound(Exception):
    """A name without a value, or an inverse that does not exist."""


def substituted(poly: Poly, sizes: Mapping[str, Poly]) -> Poly:
    """The polynomial with all its names replaced at once. Raises Unbound."""
    terms = poly.terms
    if len(terms) == 1:
        monomial, coefficient = terms[0]
        if not monomial:
            return poly
        ((symbol, power), *others) = monomial
        if isinstance(symbol, str) and power == 1 and not others and coefficient == 1:
            return _bound(symbol, sizes)
    total = ZERO
    for monomial, coefficient in terms:
        part = number(coefficient)
        for symbol, power in monomial:
            match symbol:
                case str():
                    base = _bound(symbol, sizes)
                case Quotient(numerator, denominator):
                    base = quotient(substituted(numerator, sizes), substituted(denominator, sizes))
                case _:
                    base = of(symbol)
            try:
                part = part * power_of(base, power)
            except ValueError:
                raise Unbound from None
        total = total + part
    return total


def _bound(name: str, sizes: Mapping[str, Poly]) -> Poly:
    found = sizes.get(name)
    if found is None:
        raise Unbound
    return found


def unify(equations: Iterable[tuple[Poly, Poly]], sizes: Sizes) -> bool:
    """Extends `sizes` until each pattern equals its target, a polynomial over other names; False if that is impossible.

    An equation with several unknown names waits until others determine all but one. The equation must be linear in that
    name. An equation that stays open counts as unsolved.
    """
    pending = list(equations)
    while pending:
        waiting: list[tuple[Poly, Poly]] = []
        for pattern, target in pending:
            unknown = {symbol for symbol in pattern.symbols() if isinstance(symbol, str) and symbol not in sizes}
            if not unknown:
                try:
                    if substituted(pattern, sizes) != target:
                        return False
                except Unbound:
                    return False
            elif len(unknown) > 1:
                waiting.append((pattern, target))
            else:
                (name,) = unknown
                value = _solved(pattern, name, target, sizes)
                if value is None:
                    return False
                sizes[name] = value
        if len(waiting) == len(pending):
            return False
        pending = waiting
    return True


def _solved(pattern: Poly, name: str, target: Poly, sizes: Mapping[str, Poly]) -> Poly | None:
    """The value of `name` for which pattern == target, such as `e` in `p * e` or `b` in `a + b`."""
    if pattern == of(name):
        return target
    slope = offset = ZERO
    for monomial, coefficient in pattern.terms:
        powers = dict(monomial)
        rest = Poly(((tuple(entry for entry in monomial if entry[0] != name), coefficient),))
        if powers.get(name, 0) not in (0, 1) or any(
            isinstance(symbol, Quotient) and name in (*symbol.numerator.symbols(), *symbol.denominator.symbols())
            for symbol in powers
        ):
            return None
        slope, offset = (slope + rest, offset) if name in powers else (slope, offset + rest)
    try:
        slope, offset = substituted(slope, sizes), substituted(offset, sizes)
    except Unbound:
        return None
    whole = target - offset
    if slope == ONE:
        return whole
    if not slope.terms:
        return None
    return whole.exactly_divided(slope) if whole.terms else ZERO
