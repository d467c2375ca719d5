"""Facts of element functions against numbers: many points in float64, and 50 digits where functions are analytic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_dsl.index.declarations.fact_extrema import closest_points
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
    """Whether the sides compare as stated; they are equal if they agree to 40 digits."""
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
            # Fractions of few digits, so that rounding does not separate the point from its neighbours.
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
        # Primitives that lack a value only far out: NaN there is no overflow.
        ("f(a) == 0", "0 * log(x + 1500)"),
        ("f(a) * f(a) == a + 1500", "sqrt(x + 1500)"),
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


def test_an_argument_that_rounding_takes_out_of_a_domain_contradicts_nothing() -> None:
    """a² - 2 a b + b² rounds to a negative number at some a close to b."""
    square = "x * x - 2 * x * y + y * y"
    derivatives = "  derivative x: [x > y] - [x < y]\n  derivative y: [y > x] - [y < x]\n"
    declare(f"fn f(x, y) = sqrt({square})\n{derivatives}  fact f(a, a + 1e-3) >= 0\n")


def test_the_branch_that_is_not_taken_needs_no_value() -> None:
    derivative = "  derivative x: select(x > 0, 1 / x, 0)\n"
    declare(f"fn f(x) = select(x > 0, log(x), 0)\n{derivative}  fact f(a) == 0 where a <= 0\n")
    refusal("f(a) == 0 where a <= 1", "select(x > 0, log(x), 0)")


SINE = "fn sin1(x)\n  derivative x: cos(x)\n  torch: torch.sin(x)\n  numpy: np.sin(x)\n"

FALSE_SOMEWHERE = [
    ("sin(x)", "f(a) < 1"),
    ("sin(x)", "f(a) > -1"),
    ("sin(x)", "1 - f(a) > 0"),
    ("sin(x)", "f(a) * f(a) < 1"),
    ("sin(x)", "f(a) <= 0.9999999999"),
    ("sin(x)", "f(a + b) < 1"),
    ("sin(x)", "f(a) * cos(b) < 1"),
    ("sin(x)", "f(a) + cos(a) < 1.4142135"),
    ("sin(x)", "f(a) < a where a >= 0"),
    ("sin(x)", "f(a) > 0 where a > 0, a <= 3.1415926536"),
    ("sin(x)", "f(a) == a where a < 0.001, a > -0.001"),
    ("(x - 1.2345) * (x - 1.2346)", "f(a) > 0"),
    ("x * x - 2 * x + 1", "f(a) > 0"),
    ("select(x > 1234.5, select(x < 1234.6, 1, 0), 0)", "f(a) == 0"),
    ("x * exp(-x)", "f(a) < 0.36787944"),
    ("abs(x - 2.718)", "f(a) > 0"),
    ("tanh(x)", "f(a) <= 0.999999"),
    ("exp(x) - x", "f(a) > 1"),
    ("x / (1 + x * x)", "f(a) < 0.5"),
    ("log(x)", "f(a) < a - 1 where a > 0"),
    ("sqrt(x)", "f(a) > a where a > 0, a <= 1"),
    ("maximum(x, 0)", "f(a) + f(b) == f(a + b) where a > -1e-4, b > 0"),
]


@pytest.mark.parametrize(("body", "fact"), FALSE_SOMEWHERE, ids=lambda text: text)
def test_a_fact_is_tried_where_its_sides_are_closest(body: str, fact: str) -> None:
    refusal(fact, body)


TRUE_EVERYWHERE = [
    "sin1(a) <= 1",
    "1.0000000001 - sin1(a) > 0",
    "sin1(a) < 1.0000001",
    "sin1(a) * sin1(a) == 1 - cos(a) * cos(a)",
    "sin1(a) + cos(a) < 1.4142136",
    "sin1(a) <= a where a >= 0",
    "sin1(2 * a) == 2 * sin1(a) * cos(a)",
    "sin1(a) * cos(b) <= 1",
    "sin1(a + b) >= -1",
    "abs(sin1(a)) <= abs(a)",
]


@pytest.mark.parametrize("fact", TRUE_EVERYWHERE)
def test_a_true_fact_is_accepted_where_its_sides_touch(fact: str) -> None:
    declare(f"{SINE}  fact {fact}\n")


def test_the_closest_points_are_the_minima() -> None:
    """The minimum of (a - 1.7)^2 + (b + 0.3)^2 is found at (1.7, -0.3), within the square root of the precision."""
    start = {"a": np.linspace(-3, 3, 50), "b": np.linspace(2, -2, 50)}
    found = closest_points(start, lambda at: (at["a"] - 1.7) ** 2 + (at["b"] + 0.3) ** 2)
    assert np.min(np.hypot(found["a"] - 1.7, found["b"] + 0.3)) < 1e-7
