"""Variable elimination against trying every assignment, and powers of tables against paths."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.search.cost_network import bucket_elimination as elimination
from unity_dsl.search.cost_network.bucket_elimination import Factor, TooLarge, eliminate
from unity_dsl.search.folded_solver.exact_minimum import open_power, power


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[int], list[Factor]]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    factors = []
    for _ in range(draw(st.integers(0, 7))):
        scope = tuple(draw(st.permutations(range(len(sizes))))[: draw(st.integers(0, min(3, len(sizes))))])
        shape = tuple(sizes[variable] for variable in scope)
        entries = draw(st.lists(st.integers(-9, 9), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        factors.append(Factor(scope, np.array(entries, dtype=float).reshape(shape)))
    return sizes, factors


def cost(factors: list[Factor], values: dict[int, int]) -> float:
    return sum(float(factor.table[tuple(values[variable] for variable in factor.scope)]) for factor in factors)


@given(networks(), st.data())
def test_the_least_of_every_assignment(network: tuple[list[int], list[Factor]], data: st.DataObject) -> None:
    sizes, factors = network
    kept = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True, max_size=2))
    found = eliminate(sizes, factors, kept)
    least: dict[tuple[int, ...], float] = {}
    for assignment in product(*map(range, sizes)):
        key = tuple(assignment[variable] for variable in kept)
        least[key] = min(least.get(key, np.inf), cost(factors, dict(enumerate(assignment))))
    assert found.table.shape == tuple(sizes[variable] for variable in kept)
    for key, expected in least.items():
        assert found.table[key] == expected
        values = found.assignment(dict(zip(kept, key, strict=True)))
        assert values.keys() == set(range(len(sizes)))
        assert cost(factors, values) == expected


@given(networks(), st.data())
def test_a_few_entries_at_a_time_are_the_same(network: tuple[list[int], list[Factor]], data: st.DataObject) -> None:
    sizes, factors = network
    kept = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True, max_size=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elimination, "_AT_ONCE", data.draw(st.integers(1, 5)))
        few = eliminate(sizes, factors, kept)
    assert np.array_equal(few.table, eliminate(sizes, factors, kept).table)


def test_ties_go_to_the_first_value() -> None:
    found = eliminate([3, 3], [Factor((0, 1), np.zeros((3, 3)))])
    assert found.assignment({}) == {0: 0, 1: 0}


def test_impossible_is_infinite() -> None:
    found = eliminate([2, 2], [Factor((0, 1), np.full((2, 2), np.inf))])
    assert float(found.table) == np.inf


def test_a_variable_without_values_bounds_no_table() -> None:
    """It joins eight large variables: NumPy cannot make even an empty array of these dimensions."""
    sizes = [0, *[3000] * 8]
    factors = [Factor((0, other), np.zeros((0, 3000))) for other in range(1, 9)]
    with pytest.raises(TooLarge):
        eliminate(sizes, factors, kept=range(1, 9))
    found = eliminate([0, 3, 2], [Factor((0, 1), np.zeros((0, 3))), Factor((1, 2), np.zeros((3, 2)))])
    assert float(found.table) == np.inf


def test_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elimination, "LARGEST_TABLE", 50)
    star = [Factor((0, leaf), np.zeros((2, 8))) for leaf in (1, 2, 3)]
    assert float(eliminate([2, 8, 8, 8], star).table) == 0.0
    ring = [Factor((i, (i + 1) % 4), np.zeros((8, 8))) for i in range(4)]
    with pytest.raises(TooLarge):
        eliminate([8, 8, 8, 8], ring)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 10**6))
def test_a_power_is_the_shortest_path_of_that_length(count: int, size: int, seed: int) -> None:
    steps = np.random.default_rng(seed).integers(0, 20, (2, size, size)).astype(float)
    for step, found in zip(steps, power(steps, count), strict=True):
        shortest = step
        for _ in range(count - 1):
            shortest = (shortest[:, :, None] + step[None, :, :]).min(axis=1)
        assert (found == shortest).all()


@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 10**6))
def test_a_power_of_states_that_are_left_or_entered_only(count: int, size: int, seed: int) -> None:
    """States that no step enters, or none leaves, lie between no two steps. The power equals that over all states."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 20, (3, size, size)).astype(float)
    steps[:, rng.random(size) < 0.4] = np.inf
    steps[:, :, rng.random(size) < 0.4] = np.inf
    steps[rng.random(steps.shape) < 0.2] = np.inf
    assert (open_power(steps, count) == power(steps, count)).all()
