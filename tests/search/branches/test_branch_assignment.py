"""Assignments of branches against all possible ones: the saving is as reported, and near the maximum."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from unity_dsl.search.branches.branch_assignment import Groups, Steps, assign
from unity_dsl.search.branches.series_parallel import decompose


def between(source_and_join: int, branches: list[list[int]]) -> list[list[int]]:
    """Predecessors of each step: a step 0, chains of numbered steps, and a last step that reads the end
    of each chain.
    """
    before: list[list[int]] = [[] for _ in range(source_and_join + 1)]
    for chain in branches:
        for first, second in zip([0, *chain], chain, strict=False):
            before[second] = [first]
    before[-1] = [chain[-1] for chain in branches]
    return before


@pytest.mark.parametrize("seed", range(30))
def test_a_region_of_chains(seed: int) -> None:
    """With longest processing time first, the fullest coordinate takes at most 4/3 of the minimum (Graham 1969)."""
    rng, told = Random(seed), f"seed {seed}"
    lengths = [rng.randint(1, 3) for _ in range(rng.randint(2, 5))]
    numbers = iter(range(1, 1 + sum(lengths)))
    branches = [[next(numbers) for _ in range(length)] for length in lengths]
    last = 1 + sum(lengths)
    seconds = [rng.randint(1, 9) for _ in range(last + 1)]
    planned = [float(value) for value in seconds]
    steps = Steps(planned, planned, [frozenset()] * (last + 1), lambda groups: 0.0)
    coordinates = rng.choice([2, 3])
    found = assign(decompose(between(last, branches)), steps, coordinates)
    loads = [sum(seconds[step] for step in chain) for chain in branches]
    best = min(
        max(sum(load for load, at in zip(loads, places, strict=True) if at == k) for k in range(coordinates))
        for places in product(range(coordinates), repeat=len(branches))
    )
    (groups,) = found.regions
    fullest = max(sum(seconds[step] for step in group) for group in groups)
    assert sorted(step for group in groups for step in group) == list(range(1, last)), told
    assert found.saved == pytest.approx(sum(loads) - fullest), told
    assert best <= fullest <= best * (4 / 3) + 1e-9, told
    for chain in branches:
        assert len({number for number, group in enumerate(groups) if {*chain} & {*group}}) == 1, told


def chains(**changes: object) -> Steps:
    """Three branches of 4, 3 and 2 seconds between steps of 1 second. `changes` replaces fields, such as the weights
    read.
    """
    times = [1.0, 4.0, 3.0, 2.0, 1.0]
    given: dict[str, object] = {"planned": times, "there": times, "weights": [frozenset[str]()] * 5}
    given |= {"moved": lambda groups: 0.0, **changes}
    return Steps(**given)  # type: ignore[arg-type]


TREE = decompose([[], [0], [0], [0], [1, 2, 3]])


def test_weights_in_common_stay_together() -> None:
    weights = [frozenset[str](), frozenset({"w"}), frozenset({"w", "v"}), frozenset[str](), frozenset[str]()]
    assert assign(TREE, chains(weights=weights), 2).regions == (((1, 2), (3,)),)
    assert assign(TREE, chains(), 2).regions == (((1,), (2, 3)),)


def test_what_cannot_be_on_some_devices_is_on_all() -> None:
    found = assign(TREE, chains(there=[1.0, None, 3.0, 2.0, 1.0]), 2)
    assert found.regions == (((2,), (3,)),) and found.saved == pytest.approx(2.0)


def test_what_is_moved_must_be_less_than_what_is_saved() -> None:
    def moved(groups: Groups) -> float:
        return 4.0

    assert assign(TREE, chains(moved=moved), 2).regions == ()
    assert assign(TREE, chains(moved=lambda groups: 3.5), 2).saved == pytest.approx(0.5)


def test_one_long_branch_is_no_region_but_its_branches_are() -> None:
    """A branch of two halves of 10 seconds each, next to a branch of 1 second: separating the halves saves more."""
    before = [[], [0], [1], [1], [2, 3], [0], [4, 5]]
    times = [1.0, 1.0, 10.0, 10.0, 1.0, 1.0, 1.0]
    steps = Steps(times, times, [frozenset()] * 7, lambda groups: 0.0)
    found = assign(decompose(before), steps, 2)
    assert found.regions == (((2,), (3,)),) and found.saved == pytest.approx(10.0)
