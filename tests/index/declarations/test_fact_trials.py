"""Facts of element functions against numbers: many points in float64, and 50 digits where functions are analytic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_dsl.index.declarations.fact_trials import contradiction, sample
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.term import free_axes
from unity_dsl.index.equations.term_text import condition_text
from unity_dsl.syntax.ast import Apply, FactDecl
from unity_dsl.syntax.diagnostic import InputError

from ..declare import declare
from ..exact import exact

FUNCTIONS = load_library().functions
FACTS = [fact for function in FUNCTIONS.values() for fact in function.facts]


def compares(sign: str, left: Any, right: Any) -> bool:
    """Whether the sides compare as stated; equal is what agrees to 40 digits."""
    near = abs(left - right) <= mpmath.mpf(10) ** -40 * max(1, abs(left), abs(right))
    table = {"==": near, ">": left > right, ">=": near or left >= right, "<": left < right, "<=": near or left <= right}
    return bool(table[sign])


def sides(comparison: Apply, names: Mapping[str, Any]) -> list[Any]:
    return [mpmath.mpmathify(exact(side, names, FUNCTIONS)) for side in comparison.arguments]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: condition_text(fact.claim))
def test_no_point_contradicts_a_shipped_fact(fact: FactDecl) -> None:
    assert contradiction(fact, FUNCTIONS, 10_000) is None


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: condition_text(fact.claim))
def test_a_shipped_fact_holds_to_many_digits(fact: FactDecl) -> None:
    points = sample(free_axes(fact.claim), 120)
    tried = 0
    with mpmath.workdps(50):
        for place in range(120):
            # Fractions of few digits: no rounding stands between the point and its neighbours.
            names = {name: mpmath.mpf(round(float(column[place]), 3)) for name, column in points.items()}
            if any(abs(value) > 60 for value in names.values()):
                continue
            if all(
                compares(c.function, *(exact(side, names, FUNCTIONS) for side in c.arguments)) for c in fact.conditions
            ):
                left, right = (mpmath.mpmathify(exact(side, names, FUNCTIONS)) for side in fact.claim.arguments)
                assert mpmath.im(left) == mpmath.im(right) == 0, names
                assert compares(fact.claim.function, left, right), names
                tried += 1
    assert tried >= 10


def refusal(fact: str, body: str = "sqrt(x)") -> InputError:
    with pytest.raises(InputError) as caught:
        declare(f"fn f(x) = {body}\n  derivative x: 0\n  fact {fact}\n")
    assert caught.value.diagnostic.code == "E113"
    return caught.value


@pytest.mark.parametrize(
    ("fact", "body"),
    [
        ("f(a) == a", "maximum(x, 0)"),
        ("f(a) * f(a) == a", "sqrt(x)"),
        ("f(a) == 1", "x / x"),
        ("f(a) == 1", "[x != 3]"),
        ("f(a + b) == f(a) + f(b)", "exp(x)"),
        ("f(a) < 1", "x / (1 + abs(x)) + 1e-2"),
        ("f(a) >= 0", "x + 20"),
        ("f(a) == a + 1e-6", "x"),
        ("f(a) == f(b)", "x"),
    ],
)
def test_a_fact_that_numbers_contradict_is_refused(fact: str, body: str) -> None:
    found = refusal(fact, body)
    assert found.diagnostic.span is not None
    assert "does not hold at a = " in found.diagnostic.message


@given(st.integers(-6, 6), st.integers(-6, 6), st.integers(-6, 6))
@settings(max_examples=60)
def test_a_fact_about_polynomials_is_refused_unless_it_is_true(a: int, b: int, c: int) -> None:
    """(x + a)(x + b) against x² + (a + b) x + c: true where c = a b and nowhere else."""
    fact = f"f(t) == t * t + ({a} + {b}) * t + {c}"
    text = f"fn f(x) = (x + {a}) * (x + {b})\n  derivative x: 2 * x + {a} + {b}\n  fact {fact}\n"
    if c == a * b:
        declare(text)
    else:
        with pytest.raises(InputError):
            declare(text)


def test_too_large_a_number_contradicts_nothing() -> None:
    facts = "  fact log(log(f(a))) == a where a > 0\n  fact f(a) >= 1\n"
    declare(f"fn f(x) = exp(exp(x))\n  derivative x: f(x) * exp(x)\n{facts}")
    with np.errstate(all="raise"):
        declare("fn f(x) = exp(x)\n  derivative x: exp(x)\n  fact log(f(a)) == a\n")


def test_the_branch_that_is_not_taken_needs_no_value() -> None:
    derivative = "  derivative x: select(x > 0, 1 / x, 0)\n"
    declare(f"fn f(x) = select(x > 0, log(x), 0)\n{derivative}  fact f(a) == 0 where a <= 0\n")
    refusal("f(a) == 0 where a <= 1", "select(x > 0, log(x), 0)")
