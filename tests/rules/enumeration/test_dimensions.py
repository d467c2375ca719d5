"""Unification of symbolic sizes, against the solutions of the same equations in small integers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count, product

import pytest

from unity_dsl.prove.translation.symbolic_sizes import exactly
from unity_dsl.rules.enumeration.dimensions import Dim, letters_of, unified
from unity_dsl.rules.enumeration.signature import operand_type
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.span import Source

Pairs = list[tuple[Dim, Dim]]
LARGEST = 6


def dim(size: str) -> Dim:
    (rule,) = parse_rules(Source("rule", f"rule size(x: [{size}])\n  x => x\n")).rules
    return operand_type(rule.inputs[0]).dims[0]


def solutions(pairs: Pairs) -> list[dict[str, Dim]]:
    return list(unified(pairs, frozenset({"p"}), (f"_{number}" for number in count())))


def pairs_of(texts: Sequence[tuple[str, str]]) -> Pairs:
    return [(dim(left), dim(right)) for left, right in texts]


@pytest.mark.parametrize(
    ("texts", "same"),
    [
        ([("2 * a + r - 2", "2 * b + s - 2"), ("r", "s")], [("a", "b")]),
        ([("k", "2 * a + r - 2"), ("k", "2 * b + s - 2"), ("t", "r"), ("t", "s")], [("a", "b")]),
        ([("2 * a", "2 * b")], [("a", "b")]),
        ([("h", "h + r - 1")], [("r", "1")]),
        ([("a + b", "c + d")], [("a", "c"), ("b", "d")]),
        ([("n", "a + b"), ("n", "2 * i")], [("n", "2 * i"), ("a + b", "2 * i")]),
        ([("p * n", "h * k")], [("p * n", "h * k")]),
    ],
)
def test_equal_sizes(texts: list[tuple[str, str]], same: list[tuple[str, str]]) -> None:
    """At least one solution makes the sizes `same` equal, and every solution solves the given equations."""
    found = solutions(pairs_of(texts))
    assert any(
        all(dim(left).replaced(values).total == dim(right).replaced(values).total for left, right in same)
        for values in found
    ), found
    for values in found:
        for left, right in pairs_of(texts):
            assert left.replaced(values).total == right.replaced(values).total


@pytest.mark.parametrize(
    "texts",
    [
        [("a", "a + 1")],
        [("a", "a + b")],
        [("b", "b * m")],
        [("2 * a", "2 * b + 1")],
        [("n", "a + b"), ("n", "a")],
        [("a + b", "2 * i"), ("b", "2 * i")],
        [("a + b", "h + r - 1"), ("n", "h + r - 1"), ("n", "b")],
        [("p", "2 * p")],
    ],
)
def test_sizes_that_are_never_equal(texts: list[tuple[str, str]]) -> None:
    assert solutions(pairs_of(texts)) == []


@pytest.mark.parametrize("seed", range(30))
def test_a_linear_equation_has_all_its_solutions_in_whole_numbers(seed: int) -> None:
    """Two unstructured sizes are equated through a letter: strided windows, multiples, letters."""
    draw = random.Random(seed)
    shapes = ("{0}", "{0} + 1", "2 * {0}", "{0} + {1} - 1", "2 * {0} + {1} - 2")
    left, right = (draw.choice(shapes).format(*draw.sample("abrs", 2)) for _ in range(2))
    pairs = [(dim("k"), Dim(dim(left).total)), (dim("k"), Dim(dim(right).total))]
    found = solutions(pairs)
    assert len(found) <= 1
    names = sorted({name for pair in pairs for part in pair for name in letters_of(part.total)})
    for numbers in product(range(1, LARGEST), repeat=len(names)):
        sizes = dict(zip(names, numbers, strict=True))
        solves = all(exactly(one.total, sizes) == exactly(other.total, sizes) for one, other in pairs)
        meant = any(all(exactly(own.total, sizes) == sizes[name] for name, own in one.items()) for one in found)
        assert solves == meant, f"seed {seed}: {left} is {right} at {sizes}"


def test_no_letter_stands_for_itself_and_parts_are_replaced_with_the_whole() -> None:
    """A sum `a + b` unified with a size of other letters keeps its cut, the position after `a`.

    The cut is expressed in the letters that remain.
    """
    (values,) = solutions(pairs_of([("a + b", "h + r - 1"), ("n", "a + b"), ("m", "n"), ("r", "s")]))
    left = {name for own in values.values() for size in (own.total, *own.inner) for name in letters_of(size)}
    assert left.isdisjoint(values)
    (cut,) = values["m"].cuts
    assert cut == dim("a").replaced(values).total
    assert values["m"].total == dim("h + s - 1").total


def test_a_whole_of_one_letter_keeps_its_parts() -> None:
    whole = dim("a + b").replaced({"a": Dim(dim("n - b").total)})
    assert whole.letter == "n"
    assert whole.replaced({"b": dim("k")}).cuts == {dim("n - k").total}
    assert whole.replaced({"n": dim("i + j")}).cuts == {dim("i + j - b").total, dim("i").total}


def test_a_product_is_taken_apart_where_a_later_pair_says_so() -> None:
    """`n * i` is split into `a * h` after n, or inside i if another pair makes i a product."""
    pairs = pairs_of([("n * i", "a * h"), ("i", "k * j")])
    for ordered in (pairs, pairs[::-1]):
        places = [
            {size for size in ("n", "n * k") if dim("a").replaced(values).total == dim(size).replaced(values).total}
            for values in solutions(ordered)
        ]
        assert sorted(places, key=sorted) == [{"n"}, {"n * k"}]
