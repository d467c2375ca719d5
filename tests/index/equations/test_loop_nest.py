"""Loops of equations: whether a guard has a position everywhere, by brute force over all positions."""

from __future__ import annotations

import pytest

from tests.graph.overlapping import library_with
from unity_dsl.index.equations.loop_nest import loop_nest
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.syntax.ast import Apply, Expr, Name, Number, Size

GUARDS = [
    ("c == d", 4, 4),
    ("c == d", 3, 4),
    ("c == d + 1", 4, 4),
    ("c == d + 1", 5, 4),
    ("c == d - 1", 4, 4),
    ("c == |c| - 1 - d", 4, 4),
    ("c == |c| - d", 4, 4),
    ("2 * c == d", 4, 8),
    ("c == 2 * d", 8, 4),
    ("c == 2 * d + 1", 7, 4),
    ("c == d // 2", 4, 8),
    ("c == d % 4", 4, 8),
    ("c == d % 5", 4, 8),
]
"""A guard, and the numbers of positions of `c` and `d`."""


@pytest.mark.parametrize(("guard", "c", "d"), GUARDS)
def test_a_value_is_unguarded_where_every_position_is_looked_up(guard: str, c: int, d: int) -> None:
    library = library_with(f"op looked(x: [c], z: [d]) -> y: [d]\n  y[d] = sum(c) [{guard}] * x[c] * z[d]")
    instance = instantiate(library.operators["looked"], [Shape((c,)), Shape((d,))], {})
    nest = loop_nest(instance, instance.equations[-1])
    (found,) = nest.looked_up
    terms = [value(found.term, {"d": place}, instance.sizes) for place in range(d)]
    met = all(term % found.count == 0 and 0 <= term // found.count < c for term in terms)
    assert nest.unguarded == met


@pytest.mark.parametrize(("length", "unguarded"), [(5, True), (6, True), (4, False)])
def test_integers_are_looked_up_where_their_range_lies_in_the_axis(length: int, unguarded: bool) -> None:
    library = library_with(
        "op looked(x: [c], i: int<v>[n], w: [v]) -> y: [n]\n  y[n] = sum(c) [c == i[n]] * x[c] + 0 * w[0]"
    )
    instance = instantiate(library.operators["looked"], [Shape((length,)), Shape((3,), 5), Shape((5,))], {})
    nests = [loop_nest(instance, equation) for equation in instance.equations]
    assert [nest.unguarded for nest in nests if nest.looked_up] == [unguarded]


def value(term: Expr, at: dict[str, int], sizes: dict[str, int]) -> int:
    """An integer term at given positions."""
    match term:
        case Number(value=number):
            return int(number)
        case Name(name=name):
            return at[name]
        case Size(name=name):
            return sizes[name]
        case Apply(function, (left, right)):
            first, second = value(left, at, sizes), value(right, at, sizes)
            known = {"+": first + second, "-": first - second, "*": first * second}
            return known[function] if function in known else first // second if function == "//" else first % second
    raise TypeError(term)
