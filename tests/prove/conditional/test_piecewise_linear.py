"""The canonical form of piecewise linear functions, against exact values point by point."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from unity_dsl.prove.conditional.piecewise_linear import PiecewiseLinear, greatest, hinge, selected

POINTS = [Fraction(n, 4) for n in range(-60, 61)]
IDENTITY = PiecewiseLinear(Fraction(1), Fraction(0))


def _function(random: Random) -> PiecewiseLinear:
    total = PiecewiseLinear(Fraction(random.randint(-2, 2)), Fraction(random.randint(-3, 3)))
    for _ in range(random.randint(0, 3)):
        slope, offset, factor = (Fraction(random.randint(-4, 4), 2) for _ in range(3))
        total = total + hinge(slope, offset).scaled(factor)
    return total


def test_a_hinge_is_the_greater_of_a_line_and_zero() -> None:
    for slope in (-2, 0, 3):
        for offset in (-5, 0, 1):
            found = hinge(Fraction(slope), Fraction(offset))
            assert all(found.at(point) == max(slope * point + offset, Fraction(0)) for point in POINTS)


@pytest.mark.parametrize("seed", range(40))
def test_the_greatest_of_functions_is_that_at_every_point(seed: int) -> None:
    print("seed", seed)
    random = Random(seed)
    functions = [_function(random) for _ in range(random.randint(2, 4))]
    found = greatest(functions)
    assert found is not None
    assert all(found.at(point) == max(function.at(point) for function in functions) for point in POINTS)


@pytest.mark.parametrize("seed", range(20))
def test_equal_functions_have_one_form(seed: int) -> None:
    print("seed", seed)
    random = Random(100 + seed)
    first, second, third = (_function(random) for _ in range(3))
    inner = greatest([first, second])
    assert inner is not None and greatest([inner, third]) == greatest([third, second, first])
    assert first + second.scaled(Fraction(-1)) + second == first


@pytest.mark.parametrize("seed", range(40))
def test_a_branch_is_a_function_where_it_does_not_jump(seed: int) -> None:
    print("seed", seed)
    random = Random(200 + seed)
    then, otherwise = _function(random), _function(random)
    bound = Fraction(random.randint(-3, 3))
    condition = IDENTITY + PiecewiseLinear(Fraction(0), -bound)
    found = selected(lambda value: value > 0, condition, then, otherwise)
    assert (found is None) == (then.at(bound) != otherwise.at(bound))
    closed = otherwise + PiecewiseLinear(Fraction(0), then.at(bound) - otherwise.at(bound))
    found = selected(lambda value: value > 0, condition, then, closed)
    assert found is not None
    assert all(found.at(point) == (then if point > bound else closed).at(point) for point in POINTS)


def test_a_branch_that_jumps_at_a_point_alone_is_none() -> None:
    one = PiecewiseLinear(Fraction(0), Fraction(1))
    zero = PiecewiseLinear(Fraction(0), Fraction(0))
    assert selected(lambda value: value == 0, IDENTITY, one, zero) is None
    assert selected(lambda value: value == 0, IDENTITY, zero, zero) == zero
