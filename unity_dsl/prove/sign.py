"""The sign of a form, wherever it has a value: what the conditions of facts are discharged by.

A sum of numbers that are not negative is not negative, and positive with one that is; an even power is not negative;
a sum over an axis has a term at least, since every size is; the greatest of a set is as great as each. What is known of
a function are its facts, `exp(a) > 0`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from math import lcm

from .arithmetic import Arithmetic
from .form import Atom, Element, Extremum, Form, Function, Term, Unsupported, is_infinite, scale
from .guard import Relation, guard
from .poly import ONE, Poly, number


class Sign(IntEnum):
    """What is known: each includes those before it."""

    UNKNOWN = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


class Signs:
    """`of_function` says what is known of an atom that is a function, `elements` what is assumed of tensors."""

    def __init__(
        self, arithmetic: Arithmetic, of_function: Callable[[Function], Sign], elements: Mapping[str, Sign]
    ) -> None:
        self.arithmetic = arithmetic
        self.of_function = of_function
        self.elements = elements

    def form(self, form: Form) -> Sign:
        """The sign of a form; that of zero is `NOT_NEGATIVE`."""
        if is_infinite(form):
            return Sign.UNKNOWN
        found = [self._term(term) for term in form]
        if any(sign is Sign.UNKNOWN for sign in found):
            return Sign.UNKNOWN
        return max(found, default=Sign.NOT_NEGATIVE)

    def nonzero(self, form: Form) -> bool:
        """Whether a form is known to be positive, or negative."""
        return Sign.POSITIVE in (self.form(form), self.form(scale(form, number(-1))))

    def _term(self, term: Term) -> Sign:
        found = self.coefficient(term.coefficient)
        if found is Sign.POSITIVE and term.guards:
            found = Sign.NOT_NEGATIVE
        for factor, power in term.factors:
            if found is not Sign.UNKNOWN:
                found = min(found, self.power(factor, power))
        return found

    def power(self, factor: Atom, power: int) -> Sign:
        """The sign of an atom to a power."""
        own = self.atom(factor)
        return Sign.NOT_NEGATIVE if power % 2 == 0 and own is Sign.UNKNOWN else own

    def atom(self, factor: Atom) -> Sign:
        match factor:
            case Element(tensor):
                # `#` is an index, a random number is at least 0.
                known = tensor == "#" or tensor.startswith("uniform<")
                return Sign.NOT_NEGATIVE if known else self.elements.get(tensor, Sign.UNKNOWN)
            case Function():
                return self.of_function(factor)
            case Extremum(families):
                # Some element must be there. That it is in range needs no guard: every axis has a position.
                return max((self.form(f.value) for f in families if not f.guards), default=Sign.UNKNOWN)

    def coefficient(self, value: Poly) -> Sign:
        """The sign of a number in front of a term, a polynomial in sizes."""
        if not all(isinstance(symbol, str) for monomial, _ in value.terms for symbol, _ in monomial):
            return Sign.UNKNOWN
        if all(factor > 0 for _, factor in value.terms):
            return Sign.POSITIVE if value.terms else Sign.NOT_NEGATIVE
        if value.constant is not None or any(power < 0 for monomial, _ in value.terms for _, power in monomial):
            return Sign.UNKNOWN
        whole = value.scaled(lcm(*(factor.denominator for _, factor in value.terms)))
        for sign, least in ((Sign.POSITIVE, whole - ONE), (Sign.NOT_NEGATIVE, whole)):
            try:
                if self.arithmetic.certain(guard(least, Relation.NOT_NEGATIVE)):
                    return sign
            except Unsupported:
                return Sign.UNKNOWN
        return Sign.UNKNOWN
