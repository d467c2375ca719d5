"""Guards: conditions on indices and sizes, from concatenation, slicing, padding and masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property, lru_cache

from .polynomial import ONE, ZERO, Entry, Monomial, Poly, Var, number, of, power_of


class Relation(StrEnum):
    EQUAL = "=="
    UNEQUAL = "!="
    NOT_NEGATIVE = ">="


_NEGATION = {Relation.EQUAL: Relation.UNEQUAL, Relation.UNEQUAL: Relation.EQUAL}


@dataclass(frozen=True)
class Guard:
    """`poly relation 0`, over whole numbers."""

    poly: Poly
    relation: Relation

    @cached_property
    def key(self) -> str:
        return f"{self.relation}{self.poly.key}"

    def negated(self) -> Guard:
        if self.relation is Relation.NOT_NEGATIVE:
            return Guard(-self.poly - ONE, Relation.NOT_NEGATIVE)
        return Guard(self.poly, _NEGATION[self.relation])

    def substitute(self, mapping: Mapping[Var, Poly]) -> Guard:
        return guard(self.poly.substitute(mapping), self.relation)

    @property
    def variables(self) -> frozenset[Var]:
        return self.poly.variables


def guard(poly: Poly, relation: Relation) -> Guard:
    """An equation has a positive leading coefficient, so that equal ones are equal objects."""
    if relation is not Relation.NOT_NEGATIVE and poly.terms and poly.terms[-1][1] < 0:
        poly = -poly
    return Guard(poly, relation)


def compare(sign: str, left: Poly, right: Poly) -> Guard:
    """The guard of `left sign right`."""
    match sign:
        case "==" | "!=":
            return guard(left - right, Relation(sign))
        case "<=":
            return guard(right - left, Relation.NOT_NEGATIVE)
        case "<":
            return guard(right - left - ONE, Relation.NOT_NEGATIVE)
        case ">=":
            return guard(left - right, Relation.NOT_NEGATIVE)
        case ">":
            return guard(left - right - ONE, Relation.NOT_NEGATIVE)
    raise ValueError(sign)


def within(index: Poly, size: Poly) -> tuple[Guard, Guard]:
    """0 <= index < size."""
    return compare(">=", index, ZERO), compare("<", index, size)


def verdict(condition: Guard) -> bool | None:
    """Whether a condition holds, or fails, for all indices in range and all sizes >= 1; None where that is not plain.

    Indices are put at the end of their range that makes the polynomial least; what is left is a polynomial in sizes,
    which with every size s written as 1 + s' is at least 0 when no coefficient is negative.
    """
    if condition.relation is Relation.NOT_NEGATIVE:
        if _least_is_not_negative(condition.poly):
            return True
        return False if _least_is_not_negative(-condition.poly - ONE) else None
    if not condition.poly.terms:
        return condition.relation is Relation.EQUAL
    positive = _least_is_not_negative(condition.poly - ONE) or _least_is_not_negative(-condition.poly - ONE)
    return condition.relation is Relation.UNEQUAL if positive else None


def settled(guards: Iterable[Guard]) -> tuple[Guard, ...] | None:
    """The guards that are not plainly true, each once and in order; None where they contradict each other."""
    kept: dict[Guard, None] = {}
    for condition in guards:
        known = verdict(condition)
        if known is False or condition.negated() in kept:
            return None
        if known is None:
            kept[condition] = None
    return tuple(sorted(kept, key=lambda condition: condition.key))


def _least_is_not_negative(poly: Poly) -> bool:
    least = ZERO
    for monomial, coefficient in poly.terms:
        sizes = tuple(factor for factor in monomial if isinstance(factor[0], str))
        others = [factor for factor in monomial if not isinstance(factor[0], str)]
        if any(power < 0 for _, power in monomial) or len(others) > 1:
            return False
        part = _shifted_term(sizes, coefficient)
        for symbol, power in others:
            if not isinstance(symbol, Var | Entry) or power != 1:
                return False
            if coefficient.numerator >= 0:
                part = ZERO
                continue
            shifted = _shifted(symbol.size if isinstance(symbol, Var) else symbol.bound)
            if shifted is None:
                return False
            part = part * (shifted - ONE)
        least = least + part
    return all(coefficient.numerator >= 0 for _, coefficient in least.terms)  # fractions compare slowly


@lru_cache(maxsize=4096)
def _shifted_term(sizes: Monomial, coefficient: Fraction) -> Poly:
    """A product of sizes with every s written as 1 + s', which is at least 0."""
    part = number(coefficient)
    for symbol, power in sizes:
        part = part * power_of(of(symbol) + ONE, power)
    return part


@lru_cache(maxsize=4096)
def _shifted(size: Poly) -> Poly | None:
    """A polynomial in sizes with every s written as 1 + s'; None with a quotient, which may be less than 1."""
    total = ZERO
    for monomial, coefficient in size.terms:
        if not all(isinstance(symbol, str) and power > 0 for symbol, power in monomial):
            return None
        total = total + _shifted_term(monomial, coefficient)
    return total
