"""Necessary values of random and-or graphs, and of the cells of a model, against all extractions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest

from unity_dsl.search.choices.necessary_values import Makers, necessary_values

Chosen = Mapping[str, frozenset[str]]
"""For each value, what the operator that makes it reads."""


def extractions(makers: Makers, root: str) -> Iterator[frozenset[str]]:
    """The values that each extraction computes, by brute force: every choice of a maker for every value, without
    cycles.
    """

    def extended(
        chosen: Mapping[str, frozenset[str]], pending: tuple[str, ...]
    ) -> Iterator[Mapping[str, frozenset[str]]]:
        if not pending:
            yield chosen
            return
        name, *rest = pending
        if name in chosen or name not in makers:
            yield from extended(chosen, tuple(rest))
            return
        for read in makers[name]:
            yield from extended({**chosen, name: frozenset(read)}, (*rest, *read))

    for chosen in extended({}, (root,)):
        done: set[str] = set()
        while ready := [n for n, read in chosen.items() if n not in done and not (read & chosen.keys()) - done]:
            done.update(ready)
        if done == chosen.keys():
            yield frozenset(chosen)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int) -> None:
    """Acyclic graphs: makers read earlier values only, so every choice is an extraction."""
    draw = random.Random(seed)
    names = [f"v{number}" for number in range(draw.randint(3, 9))]
    makers = {
        name: [
            frozenset(draw.sample([*names[:place], "given"], min(draw.randint(1, 2), place + 1)))
            for _ in range(draw.choice([1, 1, 2]))
        ]
        for place, name in enumerate(names)
    }
    expected = frozenset.intersection(*extractions(makers, names[-1]))
    assert necessary_values(makers, [names[-1]]) == expected, f"seed {seed}"


@pytest.mark.parametrize("seed", range(60))
def test_random_circles(seed: int) -> None:
    """Values that may be made from each other: all extractions compute every value that is called necessary."""
    draw = random.Random(seed)
    names = [f"v{number}" for number in range(draw.randint(3, 7))]
    makers = {
        name: [
            frozenset(draw.sample([*(n for n in names if n != name), "given"], draw.randint(1, 2)))
            for _ in range(draw.choice([1, 2]))
        ]
        for name in names
    }
    makers[names[0]] = [frozenset({"given"})]
    every = [*extractions(makers, names[-1])]
    if every:
        assert necessary_values(makers, [names[-1]]) <= frozenset.intersection(*every), f"seed {seed}"


def test_way_around() -> None:
    """`x` is read on both ways to the root, through different values: the makers of the root share no operand."""
    makers = {"x": [{"given"}], "a": [{"x"}], "b": [{"x"}], "root": [{"a"}, {"b"}]}
    assert necessary_values(makers, ["root"]) == {"x", "root"}
