"""Series-parallel forms against their graphs: no dependency is lost, and none is added without need."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from unity_dsl.search.branches.series_parallel import Leaf, Parallel, Series, Tree, decompose


def orders(tree: Tree) -> set[tuple[int, int]]:
    """The pairs of steps that a form orders, the first before the second."""
    if isinstance(tree, Leaf):
        return set()
    found = set().union(*map(orders, tree.parts))
    if isinstance(tree, Series):
        for earlier, later in combinations(tree.parts, 2):
            found |= {(first, second) for first in earlier.steps for second in later.steps}
    return found


def closure(before: list[list[int]]) -> set[tuple[int, int]]:
    """All pairs in which the second step depends on the first, by depth-first search."""
    found = set()
    for step in range(len(before)):
        left = list(before[step])
        while left:
            other = left.pop()
            found.add((other, step))
            left += before[other]
    return found


def has_n(order: set[tuple[int, int]], steps: int) -> bool:
    """Whether some steps have a < b, c < b and c < d, and no other comparable pair. No form then has exactly this
    order.
    """

    def apart(a: int, b: int) -> bool:
        return (a, b) not in order and (b, a) not in order

    below = {(a, b) for a, b in order}
    return any(
        apart(a, c) and apart(b, d) and apart(a, d)
        for a, b in below
        for c in range(steps)
        if (c, b) in below and c != a
        for d in range(steps)
        if (c, d) in below and d != b
    )


def drawn(rng: Random, steps: int) -> Tree:
    """A random form of `steps` steps, in order."""
    numbers = iter(range(steps))

    def make(count: int, series: bool) -> Tree:
        if count == 1:
            return Leaf(next(numbers))
        cut = rng.randint(1, count - 1)
        parts = make(cut, not series), make(count - cut, not series)
        return Series(parts) if series else Parallel(parts)

    return make(steps, rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(40))
def test_series_parallel_graphs_keep_their_order(seed: int) -> None:
    rng = Random(seed)
    order = orders(drawn(rng, rng.randint(2, 14)))
    steps = 1 + max(max(pair) for pair in order) if order else 2
    before = [sorted(a for a, b in order if b == step and rng.random() < 1) for step in range(steps)]
    tree = decompose(before)
    assert sorted(tree.steps) == list(range(steps)), f"seed {seed}"
    assert orders(tree) == closure(before), f"seed {seed}"


@pytest.mark.parametrize("seed", range(60))
def test_any_graph(seed: int) -> None:
    """A graph without an N gets no further dependency. Any other graph gets some, which make part of it a series."""
    rng = Random(1000 + seed)
    steps = rng.randint(2, 12)
    before = [sorted(other for other in range(step) if rng.random() < 0.25) for step in range(steps)]
    tree, wanted = decompose(before), closure(before)
    assert sorted(tree.steps) == list(range(steps)), f"seed {seed}"
    assert wanted <= orders(tree), f"seed {seed}"
    assert (orders(tree) == wanted) is not has_n(wanted, steps), f"seed {seed}"
    assert not any((b, a) in orders(tree) for a, b in orders(tree)), f"seed {seed}"


def test_an_inception_block() -> None:
    """Four branches between a stem and a join, two of them equal."""
    tree = decompose([[], [0], [0], [2], [0], [4], [5], [0], [1, 3, 6, 7], [8]])
    branches = Parallel(
        (Leaf(1), Series((Leaf(2), Leaf(3))), Series((Leaf(4), Leaf(5), Leaf(6))), Leaf(7)),
    )
    assert tree == Series((Leaf(0), branches, Leaf(8), Leaf(9)))
