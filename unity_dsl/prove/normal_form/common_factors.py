"""Common factors and coefficients of the terms of a form, and division by them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm

from .form import Atom, Form, Function, Term, add, refresh
from .form_products import multiply
from .polynomial import ONE, Monomial, Poly, Symbol


def common_coefficient(form: Form) -> Poly:
    """The coefficient that all terms share, 1 where they differ."""
    found = {term.coefficient for term in form}
    return found.pop() if len(found) == 1 else ONE


def common_measure(form: Form) -> Poly:
    """The greatest positive rational times product of sizes that divides every coefficient.

    1 where a coefficient is not a monomial in sizes.
    """
    if not form or any(len(term.coefficient.terms) != 1 for term in form):
        return ONE
    entries = [term.coefficient.terms[0] for term in form]
    factors = [factor for _, factor in entries]
    measure = Fraction(gcd(*(f.numerator for f in factors)), lcm(*(f.denominator for f in factors)))
    symbols: dict[Symbol, None] = {symbol: None for monomial, _ in entries for symbol, _ in monomial}
    powers = {symbol: min(dict(monomial).get(symbol, 0) for monomial, _ in entries) for symbol in symbols}
    if not all(isinstance(symbol, str) for symbol in symbols):
        return ONE
    shared: Monomial = tuple(sorted((symbol, power) for symbol, power in powers.items() if power))
    return Poly(((shared, measure),))


def common_factors(form: Form, exponentials: Collection[str]) -> dict[Atom, int]:
    """The atoms, free of bound indices, that occur in every term, each with its least power.

    An exponential missing in a term has power 0 there, so that no negative power remains after dividing by these
    factors.
    """
    found: dict[Atom, int] = {}
    for factor in dict.fromkeys(factor for term in form for factor, _ in term.factors):
        power = min(dict(term.factors).get(factor, 0) for term in form)
        inside = any(not factor.free.isdisjoint(term.bound) for term in form)
        if inside or not power or (power < 0 and not is_exponential(factor, exponentials)):
            continue
        found[factor] = power
    return found


def is_exponential(factor: Atom, exponentials: Collection[str]) -> bool:
    return isinstance(factor, Function) and factor.name in exponentials


def divided(form: Form, coefficient: Poly, factors: Mapping[Atom, int]) -> Form:
    """The form divided by a coefficient and by factors that all of its terms contain."""
    return tuple(
        replace(
            term,
            coefficient=_quotient(term.coefficient, coefficient),
            factors=_lowered(term, factors),
        )
        for term in form
    )


def _quotient(value: Poly, divisor: Poly) -> Poly:
    inverse = divisor.inverse()
    if inverse is not None:
        return value * inverse
    assert value == divisor, "only what is the same everywhere is taken out"
    return ONE


def _lowered(term: Term, factors: Mapping[Atom, int]) -> tuple[tuple[Atom, int], ...]:
    powers = dict(term.factors)
    for factor, power in factors.items():
        powers[factor] = powers.get(factor, 0) - power
    return tuple(sorted(((a, n) for a, n in powers.items() if n), key=lambda entry: entry[0].key))


def numerators(form: Form) -> Iterator[tuple[Form, Form]]:
    """Pairs (a, the form times a) for each a without bound indices such that some term contains 1 / a."""
    bound = {var for term in form for var in term.bound}
    for inverse in dict.fromkeys(factor for term in form for factor, _ in term.factors):
        if isinstance(inverse, Function) and inverse.name == "inv" and inverse.free.isdisjoint(bound):
            denominator = refresh(inverse.arguments[0])
            yield denominator, add(*(_times(term, inverse, denominator) for term in form))


def _times(term: Term, inverse: Function, denominator: Form) -> Form:
    if inverse not in dict(term.factors):
        return multiply((term,), denominator)
    return divided((term,), ONE, {inverse: 1})
