"""Guards: Iverson brackets of comparisons of indices and sizes, from concatenation, slices, padding and masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import gcd

from ...cached_hash import cached_hash
from .polynomial import ONE, ZERO, Monomial, Poly, Var, is_plainly_not_negative, of, plain_quotient


class Relation(StrEnum):
    EQUAL = "=="
    UNEQUAL = "!="
    NOT_NEGATIVE = ">="


_NEGATION = {Relation.EQUAL: Relation.UNEQUAL, Relation.UNEQUAL: Relation.EQUAL}


@cached_hash
@dataclass(frozen=True)
class Guard:
    """`poly relation 0`, over the integers."""

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
        return self if self.variables.isdisjoint(mapping) else guard(self.poly.substitute(mapping), self.relation)

    @cached_property
    def verdict(self) -> bool | None:
        """True or False where bounds decide the comparison for all indices in range and sizes >= 1, else None."""
        if self.relation is Relation.NOT_NEGATIVE:
            if is_plainly_not_negative(self.poly):
                return True
            return False if is_plainly_not_negative(-self.poly - ONE) else None
        if not self.poly.terms:
            return self.relation is Relation.EQUAL
        positive = is_plainly_not_negative(self.poly - ONE) or is_plainly_not_negative(-self.poly - ONE)
        return self.relation is Relation.UNEQUAL if positive else None

    @property
    def variables(self) -> frozenset[Var]:
        return self.poly.variables


def guard(poly: Poly, relation: Relation) -> Guard:
    """The normalised guard: equations get a positive leading coefficient, so that equal ones are equal objects."""
    if relation is not Relation.NOT_NEGATIVE and poly.terms and poly.terms[-1][1] < 0:
        poly = -poly
    return Guard(poly, relation)


def in_blocks(poly: Poly) -> Poly:
    """A polynomial of the same sign (>= 0 or < 0), divided by sizes d for which bounds determine n // d.

    n >= 0 if and only if n // d >= 0, for d >= 1: `d i + j >= 0` with j < d becomes `i >= 0`.
    """
    nonlinear = [monomial for monomial, _ in poly.terms if _degree(monomial) > 1]
    for size in sorted({symbol for monomial in nonlinear for symbol, _ in monomial if isinstance(symbol, str)}):
        shared = gcd(*(factor.numerator for monomial, factor in poly.terms if size in dict(monomial)))
        for divisor in dict.fromkeys((of(size).scaled(shared), of(size))):
            whole = plain_quotient(poly, divisor)
            if whole is not None:
                return in_blocks(whole)
    return poly


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


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


def settled(guards: Iterable[Guard]) -> tuple[Guard, ...] | None:
    """The guards that bounds do not decide, deduplicated and sorted; None where two contradict, or one is false."""
    kept: dict[Guard, None] = {}
    for condition in guards:
        known = condition.verdict
        if known is False or condition.negated() in kept:
            return None
        if known is None:
            kept[condition] = None
    return tuple(sorted(kept, key=lambda condition: condition.key))
