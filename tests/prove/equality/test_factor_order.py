"""The canonical order of equal factors does not depend on the order and the names in which they come."""

from __future__ import annotations

from random import Random

import pytest

from unity_dsl.prove.equality.factor_order import Place, arranged
from unity_dsl.prove.normal_form.guard import compare
from unity_dsl.prove.normal_form.polynomial import Poly, Var, fresh, of

SIZE = of("m")


def _product(random: Random, bound: list[Var]) -> list[Place]:
    """A random product: one tensor read at all indices, and six elements of another read at sums of two indices."""
    weight = tuple(of(var) for var in random.sample(bound, len(bound)))
    return [("w", weight), *(("x", (of(random.choice(bound)) + of(random.choice(bound)),)) for _ in range(6))]


def _renamed(places: list[Place], mapping: dict[Var, Poly]) -> list[Place]:
    return [(name, tuple(part.substitute(mapping) for part in index)) for name, index in places]


@pytest.mark.parametrize("seed", range(20))
def test_order_and_names_do_not_matter(seed: int) -> None:
    print("seed", seed)
    random = Random(seed)
    bound = [fresh(SIZE) for _ in range(5)]
    places, guards = _product(random, bound), [compare("<", of(bound[0]), of(bound[1]))]
    others = [fresh(SIZE) for _ in bound]
    mapping = {old: of(new) for old, new in zip(bound, random.sample(others, 5), strict=True)}
    shuffled = random.sample(_renamed(places, mapping), len(places))
    first = _renamed(list(arranged(places, bound, guards)), mapping)
    second = arranged(shuffled, others, [guard.substitute(mapping) for guard in guards])
    assert first == list(second)


def test_symmetric_factors_are_told_apart_together() -> None:
    i, j, k = (fresh(SIZE) for _ in range(3))
    product: list[Place] = [("x", (of(i), of(j))), ("x", (of(j), of(k))), ("x", (of(k), of(i)))]
    first = arranged(product, [i, j, k], [])
    chain = [index for _, index in first]
    assert {chain[0][0], chain[1][0], chain[2][0]} == {of(i), of(j), of(k)}
    assert sorted(first, key=str) == sorted(product, key=str)
