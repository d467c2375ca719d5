"""Sizes of a rule at a match: solves polynomial equations between the rule's names and the model's sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from ..prove.normal_form.polynomial import Monomial, Poly

Equation = tuple[Poly, int]
"""A size of the rule, equated with a number of the model."""


def solve_sizes(equations: Iterable[Equation]) -> dict[str, int] | None:
    """The names that the equations determine one by one.

    None if they contradict each other or require a size that is not an integer >= 1.
    """
    pending = list(equations)
    known: dict[str, int] = {}
    progress = True
    while progress:
        progress = False
        for equation in list(pending):
            rest, constant = _rest(equation[0], known)
            difference = equation[1] - constant
            if not rest:
                if difference != 0:
                    return None
                pending.remove(equation)
            elif (name := _single(rest)) is not None:
                size = difference / rest[((name, 1),)]
                if size.denominator != 1 or size < 1:
                    return None
                known[name] = int(size)
                pending.remove(equation)
                progress = True
    return known


def _rest(size: Poly, known: Mapping[str, int]) -> tuple[dict[Monomial, Fraction], Fraction]:
    """The unknown part of a polynomial, and the value of its known part."""
    rest: dict[Monomial, Fraction] = {}
    for monomial, coefficient in size.terms:
        value = coefficient
        for symbol, power in monomial:
            if isinstance(symbol, str) and symbol in known:
                value *= Fraction(known[symbol]) ** power
        unknown = tuple(entry for entry in monomial if entry[0] not in known)
        rest[unknown] = rest.get(unknown, Fraction(0)) + value
    constant = rest.pop((), Fraction(0))
    return {monomial: value for monomial, value in rest.items() if value}, constant


def _single(rest: Mapping[Monomial, Fraction]) -> str | None:
    """The only unknown, if it occurs once and linearly; else None."""
    if len(rest) != 1:
        return None
    (monomial,) = rest
    if len(monomial) == 1 and isinstance(monomial[0][0], str) and monomial[0][1] == 1:
        return monomial[0][0]
    return None
