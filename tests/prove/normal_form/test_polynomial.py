"""Floor quotients of polynomials against Python's `//`, for divisors of either sign."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.normal_form.polynomial import Poly, number, of, quotient
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.symbolic_sizes import exactly
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.span import Source

DIVISORS = st.integers(-5, 5).filter(bool)
FORMS: dict[str, Callable[[Poly, Poly, int, int], Poly]] = {
    "n - m": lambda n, m, a, b: n - m,
    "a n + b m": lambda n, m, a, b: n.scaled(Fraction(a)) + m.scaled(Fraction(b)),
    "a b n - 1": lambda n, m, a, b: n.scaled(Fraction(a * b)) - number(1),
}


@given(st.sampled_from(sorted(FORMS)), DIVISORS, DIVISORS, st.integers(-9, 9))
def test_nested_quotients_are_those_of_numbers(form: str, first: int, second: int, shift: int) -> None:
    n, m = of("n"), of("m")
    numerator = FORMS[form](n, m, first, second)
    found = quotient(quotient(numerator, number(first)) + number(shift), number(second))
    for sizes in product(range(1, 8), repeat=2):
        named = dict(zip("nm", sizes, strict=True))
        told = (int(exactly(numerator, named)) // first + shift) // second
        assert exactly(found, named) == told, (form, first, second, shift, named)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("(-n) // 3 // (-3)", "(-n) // (3 * (-3))"),
        ("exp(-((n - |n|) // 3 // (-3)))", "exp(-((n - |n|) // (3 * (-3))))"),
        ("n // (-2) // (-2)", "n // 4"),
        ("n % (-3)", "n % 3"),
        ("n // (-1 - |n|)", "0 * n"),
    ],
)
def test_divisors_below_zero_prove_nothing_false(left: str, right: str) -> None:
    ops = f"op f(x: [n]) -> y: [n]\n  y[n] = {left}\n\nop g(x: [n]) -> y: [n]\n  y[n] = {right}\n"
    library = library_of([*library_sources(), Source("own.uop", ops)])
    (rule,) = parse_rules(Source("own.rules", "rule r(x: [n])\n  f(x) => g(x)\n")).rules
    assert not isinstance(prove_rule(rule, library), Proved)
    assert not isinstance(prove_rule(rule, library, numbers=False), Proved)
