"""Decisions about facts over the reals, against Python's exact arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest

from unity_dsl.prove.decision.real_arithmetic import true_over_reals
from unity_dsl.syntax.ast import Apply, FactDecl, Name, Number
from unity_dsl.syntax.rational import rational

from ...index.exact import COMPARISONS

ARITHMETIC: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
VALUES = [Fraction(-3, 2), Fraction(-1), Fraction(0), Fraction(1, 3), Fraction(2)]


def number(value: Fraction) -> Number:
    return Number(rational(value))


@pytest.mark.parametrize("sign", COMPARISONS)
def test_numbers_compare_as_they_are(sign: str) -> None:
    for left, right in product(VALUES, repeat=2):
        claim = Apply(sign, (number(left), number(right)))
        assert true_over_reals(FactDecl(claim), {}) is COMPARISONS[sign](left, right), (left, right)


@pytest.mark.parametrize("sign", ARITHMETIC)
def test_arithmetic_is_exact(sign: str) -> None:
    for left, right in product(VALUES, repeat=2):
        found = Apply(sign, (number(left), number(right)))
        value = ARITHMETIC[sign](left, right)
        assert true_over_reals(FactDecl(Apply("==", (found, number(value)))), {})
        assert not true_over_reals(FactDecl(Apply("==", (found, number(value + Fraction(1, 7))))), {})


def test_a_fact_holds_for_all_values_that_meet_its_conditions() -> None:
    x, zero = Name("x"), number(Fraction(0))
    square = Apply("*", (x, x))
    assert true_over_reals(FactDecl(Apply(">=", (square, zero))), {})
    assert not true_over_reals(FactDecl(Apply(">", (square, zero))), {})
    assert true_over_reals(FactDecl(Apply(">", (square, zero)), (Apply("!=", (x, zero)),)), {})


def test_a_side_that_may_have_no_value_proves_nothing() -> None:
    x, zero = Name("x"), number(Fraction(0))
    quotient = Apply("/", (x, x))
    claim = Apply("==", (quotient, number(Fraction(1))))
    assert not true_over_reals(FactDecl(claim), {})
    assert true_over_reals(FactDecl(claim, (Apply(">", (x, zero)),)), {})
