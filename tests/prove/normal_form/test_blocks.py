"""Positions in blocks: division by sums of sizes and comparisons divided by a block's size, against numeric values."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product as combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from unity_dsl.prove.normal_form.guard import in_blocks
from unity_dsl.prove.normal_form.polynomial import ONE, Poly, Var, fresh, number, of, plain_quotient, product, quotient
from unity_dsl.prove.translation.symbolic_sizes import exactly

SIZES = ("h", "r")
COEFFICIENTS = st.integers(-3, 3)


@st.composite
def polynomials(draw: st.DrawFn, symbols: tuple[Poly, ...]) -> Poly:
    """A sum of products of at most two of the symbols."""
    total = number(draw(COEFFICIENTS))
    for _ in range(draw(st.integers(1, 4))):
        parts = draw(st.lists(st.sampled_from(symbols), min_size=1, max_size=2))
        total = total + product(parts).scaled(Fraction(draw(COEFFICIENTS)))
    return total


PLAIN = tuple(map(of, SIZES))
DIVISORS = (of("h") + of("r") - ONE, of("h").scaled(2) + of("r"), of("h") * of("r") + ONE, of("h").scaled(3))


def at_numbers() -> Iterator[dict[str, int]]:
    yield from (dict(zip(SIZES, sizes, strict=True)) for sizes in combinations(range(1, 5), repeat=2))


@given(polynomials(PLAIN), st.sampled_from(DIVISORS))
def test_long_division_by_a_sum_of_sizes(numerator: Poly, divisor: Poly) -> None:
    whole, rest = numerator.divided(divisor)
    assert whole * divisor + rest == numerator and whole.is_integral and rest.is_integral
    for sizes in at_numbers():
        told = exactly(numerator, sizes) // exactly(divisor, sizes)
        assert exactly(quotient(numerator, divisor), sizes) == told
        plain = plain_quotient(numerator, divisor)
        assert plain is None or exactly(plain, sizes) == told


@given(polynomials(PLAIN), st.sampled_from(DIVISORS))
def test_an_exact_quotient_is_found_and_no_other(numerator: Poly, divisor: Poly) -> None:
    assert (numerator * divisor).exactly_divided(divisor) == numerator
    found = numerator.exactly_divided(divisor)
    assert found is None or found * divisor == numerator


ROW, COLUMN = fresh(of("h")), fresh(of("r"))


def valued(poly: Poly, sizes: dict[str, int], indices: dict[Var, Poly]) -> Fraction:
    return exactly(poly.substitute(indices), sizes)


@settings(max_examples=150)
@given(polynomials((*PLAIN, of(ROW), of(COLUMN))))
def test_a_comparison_divided_by_a_block_has_the_same_truth(poly: Poly) -> None:
    found = in_blocks(poly)
    for sizes in at_numbers():
        for i, j in combinations(range(sizes["h"]), range(sizes["r"])):
            here = {ROW: number(i), COLUMN: number(j)}
            assert (valued(poly, sizes, here) >= 0) == (valued(found, sizes, here) >= 0)


def test_a_comparison_of_blocks_is_one_of_their_numbers() -> None:
    """`i r + j >= r` with j < r becomes `i >= 1`, and `h r - 1 - i r - j >= r` becomes `h - i >= 2`."""
    block = of("r")
    assert in_blocks(of(ROW) * block + of(COLUMN) - block) == of(ROW) - ONE
    assert in_blocks(of("h") * block - ONE - of(ROW) * block - of(COLUMN) - block) == of("h") - of(ROW) - number(2)
    assert in_blocks(of("h") * block - block.scaled(Fraction(2)) - ONE) == of("h") - number(3)
