"""Conditions on real numbers as signs of polynomials, and implications between them by the rules of signs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

from ...index.equations.term import substitute
from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.polynomial import Poly
from ...prove.translation.rule_forms import attribute_value
from ...prove.translation.size_assumptions import Claim
from ...syntax.ast import Apply, Expr
from ...syntax.diagnostic import InputError


class Sign(IntEnum):
    """Knowledge about the sign of a number. POSITIVE and ZERO imply NOT_NEGATIVE; POSITIVE also implies NONZERO."""

    NONZERO = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2
    ZERO = 3


@dataclass(frozen=True)
class RealFact:
    """`poly` has this sign. Polynomials are scaled to a leading coefficient of 1 or -1."""

    poly: Poly
    sign: Sign


def real_poly(expr: Expr, claim: Claim, reals: Collection[str]) -> Poly:
    """Arithmetic on sizes and real numbers as a polynomial. Raises Unsupported if it divides by a real number."""
    try:
        found = attribute_value(expr, claim)
    except (InputError, ValueError, OverflowError, ZeroDivisionError):
        raise Unsupported("an attribute of another form") from None
    if any(symbol in reals and power < 0 for monomial, _ in found.terms for symbol, power in monomial):
        raise Unsupported("a division by a real number")
    return found


def fact_of(condition: Apply, values: Mapping[str, Expr], claim: Claim, reals: Collection[str]) -> RealFact:
    """A condition as the sign of a polynomial. Raises Unsupported."""
    left, right = (real_poly(substitute(side, values), claim, reals) for side in condition.arguments)
    match condition.function:
        case ">" | ">=":
            difference = left - right
        case _:
            difference = right - left
    signs = {">": Sign.POSITIVE, "<": Sign.POSITIVE, "!=": Sign.NONZERO, "==": Sign.ZERO}
    return _scaled(difference, signs.get(condition.function, Sign.NOT_NEGATIVE))


def _scaled(poly: Poly, sign: Sign) -> RealFact:
    if not poly.terms:
        return RealFact(poly, sign)
    leading = poly.terms[-1][1]
    size = abs(leading) if sign in (Sign.POSITIVE, Sign.NOT_NEGATIVE) else leading
    return RealFact(poly.scaled(Fraction(1) / size), sign)


def with_poly(fact: RealFact, poly: Poly) -> RealFact:
    """The same claim about another polynomial."""
    return _scaled(poly, fact.sign)


def follows(fact: RealFact, known: Sequence[RealFact], reals: Collection[str]) -> bool:
    """Whether a fact follows from others: it is one of them, is weaker than one, or follows from the signs of its
    names.
    """
    if fact in known:
        return True
    sign = _sign(fact.poly, known, reals)
    if sign is None:
        return fact.sign is Sign.NONZERO and _is_nonzero(fact.poly, known, reals)
    if fact.sign is Sign.NOT_NEGATIVE:
        return True
    return sign is (Sign.ZERO if fact.sign is Sign.ZERO else Sign.POSITIVE)


def _sign(poly: Poly, known: Sequence[RealFact], reals: Collection[str]) -> Sign | None:
    """The sign of a sum of products whose signs are all known; None if it is not certain."""
    if not poly.terms:
        return Sign.ZERO
    direct = _known_sign(poly, known)
    if direct is not None:
        return direct
    signs = []
    for monomial, coefficient in poly.terms:
        odd = [symbol for symbol, power in monomial if symbol in reals and power % 2]
        even = [symbol for symbol, power in monomial if symbol in reals and not power % 2]
        parts = [_known_sign(_named(symbol), known) for symbol in odd if isinstance(symbol, str)]
        if coefficient < 0 or None in parts or Sign.ZERO in parts or not all(isinstance(s, str) for s, _ in monomial):
            return None
        signs.append(Sign.NOT_NEGATIVE if even or Sign.NOT_NEGATIVE in parts else Sign.POSITIVE)
    return max(signs)


def _named(symbol: str) -> Poly:
    return Poly(((((symbol, 1),), Fraction(1)),))


def _known_sign(poly: Poly, known: Sequence[RealFact]) -> Sign | None:
    scaled = _scaled(poly, Sign.POSITIVE).poly
    found = [fact.sign for fact in known if fact.poly == scaled and fact.sign is not Sign.NONZERO]
    return max(found, default=None)


def _is_nonzero(poly: Poly, known: Sequence[RealFact], reals: Collection[str]) -> bool:
    """Whether a number of unknown sign is nonzero: its negative is positive, or it is a product of nonzero numbers."""
    if _sign(-poly, known, reals) is Sign.POSITIVE:
        return True
    if len(poly.terms) != 1:
        return False
    ((monomial, _),) = poly.terms
    nonzero = {fact.poly for fact in known if fact.sign in (Sign.NONZERO, Sign.POSITIVE)}
    return all(
        symbol not in reals or (isinstance(symbol, str) and not nonzero.isdisjoint({_named(symbol), -_named(symbol)}))
        for symbol, _ in monomial
    )
