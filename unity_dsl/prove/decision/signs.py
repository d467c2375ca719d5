"""Abstract interpretation of forms over the sign lattice: positive, not negative, unknown; wherever they have a value.

Only finite forms have a strict sign: exp(a) > 0 for every real a, but not at minus infinity. Sums of non-negative terms
are non-negative, and positive with a positive one; even powers are non-negative; a sum over an axis has at least one
term, since every size is at least 1; a maximum is at least each member. Signs of functions are declared facts, `exp(a)
> 0`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from math import lcm

from ..normal_form.common_factors import numerators
from ..normal_form.form import (
    Atom,
    Element,
    Extremum,
    Family,
    Form,
    Function,
    Term,
    Unsupported,
    add,
    is_finite,
    refreshed_family,
    scale,
)
from ..normal_form.form_products import multiply
from ..normal_form.guard import Guard, Relation, guard
from ..normal_form.polynomial import ONE, Poly, number
from ..normal_form.step_limit import spend
from .inhabited_sets import inhabited
from .integer_arithmetic import Arithmetic

MAX_SUM = 16
"""Longer sums with a term of unknown sign have an unknown sign."""


class Sign(IntEnum):
    """The lattice of signs, in increasing strength."""

    UNKNOWN = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


class Signs:
    """Computes signs.

    `of_function` gives the sign of a function atom, `elements` the assumed signs of tensors' elements.
    """

    def __init__(
        self, arithmetic: Arithmetic, of_function: Callable[[Function], Sign], elements: Mapping[str, Sign]
    ) -> None:
        self.arithmetic = arithmetic
        self.of_function = of_function
        self.elements = elements

    def form(self, form: Form) -> Sign:
        """The sign of a form; `NOT_NEGATIVE` for zero."""
        spend()
        if not is_finite(form):
            return Sign.UNKNOWN
        found = [self._term(term) for term in form]
        if Sign.UNKNOWN not in found:
            least = max(found, default=Sign.NOT_NEGATIVE)
            return Sign.POSITIVE if least is Sign.NOT_NEGATIVE and self._is_somewhere_positive(form) else least
        if len(form) > MAX_SUM:
            return Sign.UNKNOWN
        for denominator, numerator in numerators(form):
            if self.form(denominator) is Sign.POSITIVE:
                return self.form(numerator)
        for position, term in enumerate(form):
            inner = self.set_in(term)
            if inner is not None:
                return self._set(put_in_set(form, position, inner))
        return Sign.UNKNOWN

    def _is_somewhere_positive(self, form: Form) -> bool:
        """Whether at least one positive term under guards is always present, given that no term is negative."""
        guarded = [term for term in form if term.guards]
        positive = [term for term in guarded if self._term(replace(term, guards=())) is Sign.POSITIVE]
        families = [Family(term.bound, term.guards, ()) for term in positive]
        return bool(families) and inhabited(families, self.arithmetic)

    def set_in(self, term: Term) -> Extremum | None:
        """The maximum in a term c × max with c >= 0, or c > 0 if the maximum may be infinite; else None."""
        sets = [(factor, power) for factor, power in term.factors if isinstance(factor, Extremum)]
        if len(sets) != 1 or sets[0][1] != 1 or term.bound or term.guards:
            return None
        inner = sets[0][0]
        others = replace(term, factors=tuple(entry for entry in term.factors if entry[0] is not inner))
        sign = Sign.POSITIVE if others == Term(ONE) else self.form((others,))
        return inner if sign is Sign.POSITIVE or (sign is Sign.NOT_NEGATIVE and not inner.infinities) else None

    def _set(self, families: Sequence[Family]) -> Sign:
        """The sign of a maximum: the best of its unguarded members or, if that is unknown, of the sum of all members.

        The sum is used only if no family has guards or bound indices.
        """
        found = max((self.form(family.value) for family in families if not family.guards), default=Sign.UNKNOWN)
        if found is Sign.UNKNOWN and not any(family.guards or family.bound for family in families):
            mean = add(*(family.value for family in families))
            found = Sign.UNKNOWN if any(map(_has_set, mean)) else self.form(mean)
        return found

    def nonzero(self, form: Form) -> bool:
        """Whether a form is known to be positive or negative."""
        return Sign.POSITIVE in (self.form(form), self.form(scale(form, number(-1))))

    def _term(self, term: Term) -> Sign:
        found = self.coefficient(term.coefficient)
        if found is Sign.POSITIVE and term.guards:
            found = Sign.NOT_NEGATIVE
        for factor, power in term.factors:
            if found is not Sign.UNKNOWN:
                found = min(found, self.power(factor, power, term.guards))
        return found

    def power(self, factor: Atom, power: int, given: tuple[Guard, ...] = ()) -> Sign:
        """The sign of an atom to a power, under the given conditions."""
        own = self.atom(factor, given)
        return Sign.NOT_NEGATIVE if power % 2 == 0 and own is Sign.UNKNOWN else own

    def atom(self, factor: Atom, given: tuple[Guard, ...] = ()) -> Sign:
        match factor:
            case Element("#", (position,)):
                return Sign.NOT_NEGATIVE if self._not_negative(position, given) else Sign.UNKNOWN
            case Element(tensor):
                random = tensor.startswith("uniform<")  # at least 0
                return Sign.NOT_NEGATIVE if random else self.elements.get(tensor, Sign.UNKNOWN)
            case Function():
                return self.of_function(factor)
            case Extremum(families):
                return self._set(families)

    def _not_negative(self, position: Poly, given: tuple[Guard, ...]) -> bool:
        """Whether an index used as a value is known to be >= 0; a quotient of sizes need not be."""
        try:
            return self.arithmetic.certain(guard(position, Relation.NOT_NEGATIVE), given)
        except Unsupported:
            return False

    def coefficient(self, value: Poly) -> Sign:
        """The sign of a coefficient, a polynomial in sizes."""
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


def put_in_set(form: Form, position: int, inner: Extremum) -> list[Family]:
    """t + c max(A), with the maximum in the term at `position`, as the families t + c A."""
    term = form[position]
    rest = form[:position] + form[position + 1 :]
    others = (replace(term, factors=tuple(entry for entry in term.factors if entry[0] is not inner)),)
    families = map(refreshed_family, inner.families)
    return [replace(family, value=add(rest, multiply(others, family.value))) for family in families]


def _has_set(term: Term) -> bool:
    return any(isinstance(factor, Extremum) for factor, _ in term.factors)
