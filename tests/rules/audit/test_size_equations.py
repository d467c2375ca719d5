"""Equations between sizes, against their solutions in small numbers."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from unity_dsl.prove.normal_form.polynomial import Poly, number, of
from unity_dsl.prove.normal_form.step_limit import OutOfSteps, limited
from unity_dsl.rules.audit.size_equations import Contradiction, Sizes

NAMES = ("a", "b", "c", "d")
LARGEST = 5


def made() -> tuple[Sizes, list[Poly]]:
    sizes = Sizes()
    return sizes, [sizes.fresh(name) for name in NAMES]


def at(poly: Poly, numbers: dict[str, int]) -> int:
    for name, value in numbers.items():
        poly = poly.with_size(name, number(value))
    assert poly.constant is not None
    return int(poly.constant)


def drawn(random: Random) -> Poly:
    """A sum of a few sizes, or a multiple or a product."""
    parts = [of(random.choice(NAMES)).scaled(random.randint(1, 2)) for _ in range(random.randint(1, 2))]
    total = sum(parts[1:], parts[0])
    return total * of(random.choice(NAMES)) if random.random() < 0.2 else total


@pytest.mark.parametrize("seed", range(60))
def test_substitutions_keep_exactly_the_solutions(seed: int) -> None:
    """Substitutions and open equations together have exactly the solutions of the stated equations."""
    random = Random(seed)
    sizes, _ = made()
    stated = [(drawn(random), drawn(random)) for _ in range(random.randint(1, 3))]
    grid = [dict(zip(NAMES, numbers, strict=True)) for numbers in product(range(1, LARGEST + 1), repeat=len(NAMES))]
    solutions = [numbers for numbers in grid if all(at(left - right, numbers) == 0 for left, right in stated)]
    try:
        for left, right in stated:
            sizes.equal(left, right)
    except Contradiction:
        assert not solutions, f"seed {seed}"
        return
    kept = [
        numbers
        for numbers in grid
        if all(at(sizes.value(of(name)), numbers) == numbers[name] for name in NAMES)
        and all(at(poly, numbers) == 0 for poly in sizes.open)
    ]
    assert kept == solutions, f"seed {seed}"


def test_two_equations_are_put_into_one_another() -> None:
    """Concatenations in two orders imply that the parts are equal one by one."""
    sizes, (a, b, c, d) = made()
    sizes.equal(a + b, c + d)
    sizes.equal(a + d, c + b)
    assert not sizes.open and sizes.value(a - c).terms == () and sizes.value(b - d).terms == ()


def test_a_size_that_would_have_to_be_0_is_a_contradiction() -> None:
    sizes, (a, b, _, _) = made()
    with pytest.raises(Contradiction):
        sizes.equal(a + b, a)


def test_names_are_numbered_from_the_second() -> None:
    sizes = Sizes()
    assert [sizes.fresh("n"), sizes.fresh("c"), sizes.fresh("n")] == [of("n"), of("c"), of("n2")]


def test_equations_without_end_are_given_up() -> None:
    sizes = Sizes()
    names = [sizes.fresh("n") for _ in range(64)]
    with limited(300), pytest.raises(OutOfSteps):
        for first, second, third, fourth in zip(names[::4], names[1::4], names[2::4], names[3::4], strict=True):
            sizes.equal(first + second, third + fourth)
