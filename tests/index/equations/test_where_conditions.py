"""Sizes that `where` conditions determine: with numbers against brute force, with symbols against the same with
numbers.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_dsl.index.equations.where_conditions import Numbers, Unsolvable, determine, solve_numbers, value_of
from unity_dsl.prove.decision.integer_arithmetic import Arithmetic
from unity_dsl.prove.normal_form.polynomial import number, of
from unity_dsl.prove.normal_form.polynomial import product as product_of
from unity_dsl.prove.translation.symbolic_sizes import Sizes, valued
from unity_dsl.syntax.ast import Apply, Expr, Name, Number

LETTERS = {"a": 3, "b": 4, "c": 5}


def expressions(unknown: bool) -> st.SearchStrategy[Expr]:
    """Arithmetic on sizes, with `x` at most once."""
    known = st.sampled_from([*map(Name, LETTERS), Number(1), Number(2), Number(7)])
    plain = st.recursive(known, lambda part: st.builds(binary, st.sampled_from("+*"), part, part), max_leaves=3)
    if not unknown:
        return plain
    around = st.tuples(st.sampled_from(["+", "-", "*"]), plain, st.booleans())
    return st.lists(around, max_size=3).map(wrapped)


def binary(function: str, left: Expr, right: Expr) -> Expr:
    return Apply(function, (left, right))


def wrapped(layers: list[tuple[str, Expr, bool]]) -> Expr:
    expr: Expr = Name("x")
    for function, other, first in layers:
        expr = binary(function, expr, other) if first else binary(function, other, expr)
    return expr


@settings(max_examples=200, deadline=None, derandomize=True)
@given(expressions(unknown=True), expressions(unknown=False))
def test_an_equation_determines_the_one_number_that_solves_it(left: Expr, right: Expr) -> None:
    # `x` occurs at most once, inside sums and products: it adds a multiple of itself to the value.
    start, step = (value_of(left, {**LETTERS, "x": x}) for x in (0, 1))
    wanted = value_of(right, LETTERS)
    solutions = [x for x in range(-2000, 2000) if start + (step - start) * x == wanted]
    known = dict(LETTERS)
    try:
        assert determine(binary("==", left, right), Numbers(known))
        assert known["x"] in solutions or abs(known["x"]) >= 2000
    except Unsolvable:
        assert not solutions


@settings(max_examples=100, deadline=None, derandomize=True)
@given(expressions(unknown=True).filter(lambda expr: "*" not in str(expr)), expressions(unknown=False))
def test_symbols_are_solved_for_as_numbers_are(left: Expr, right: Expr) -> None:
    sizes = Sizes(Arithmetic(()), {name: (of(name),) for name in LETTERS})
    known = dict(LETTERS)
    assert determine(binary("==", left, right), Numbers(known)) and determine(binary("==", left, right), sizes)
    assert valued(product_of(sizes.dims["x"]), LETTERS) == known["x"]


@pytest.mark.parametrize("whole", [6, 7])
def test_a_product_is_divided_where_that_is_exact(whole: int) -> None:
    equation = binary("==", Number(whole), binary("*", Number(2), Name("x")))
    known: dict[str, int | float] = {}
    assert solve_numbers([equation], known) is (whole == 6)
    assert known == ({"x": 3} if whole == 6 else {})


def test_conditions_feed_each_other_and_are_all_checked() -> None:
    chain = [
        binary("==", Name("y"), binary("+", Name("x"), Number(1))),
        binary("==", Name("x"), binary("*", Name("a"), Number(2))),
        Apply("<", (Name("y"), Number(8))),
    ]
    for order in product(range(3), repeat=3):
        if len(set(order)) == 3:
            known: dict[str, int | float] = {"a": 3}
            assert solve_numbers([chain[place] for place in order], known)
            assert known == {"a": 3, "x": 6, "y": 7}
    assert not solve_numbers(chain, {"a": 4})


def test_a_product_of_rest_axes_is_no_unknown_of_symbols() -> None:
    sizes = Sizes(Arithmetic(()), {})
    assert not determine(binary("==", Name("b", True), Number(3)), sizes)
    assert sizes.dims == {} and sizes.value(Number(3)) == (number(3),)
