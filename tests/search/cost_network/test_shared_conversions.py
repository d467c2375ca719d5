"""The cost of a shared tensor, against every choice of a produced layout and two further ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.search.cost_network.bucket_elimination import Table
from unity_dsl.search.cost_network.shared_conversions import GroupedCost, SharedCost, min_plus

from ..closed_prices import closed

LAYOUTS = 4


def random_cost(rng: np.random.Generator) -> SharedCost:
    """Random prices. In half of the cases some first steps from a produced layout are cheaper."""
    direct = rng.integers(1, 20, (LAYOUTS, LAYOUTS)).astype(float)
    np.fill_diagonal(direct, 0.0)
    between = closed(direct)
    if rng.random() < 0.5:
        return SharedCost(between)
    first = np.where(rng.random(direct.shape) < 0.4, rng.integers(0, 20, direct.shape), direct)
    prices = np.minimum(between, (first[:, :, None] + between).min(axis=1))
    np.fill_diagonal(prices, 0.0)
    return SharedCost(prices, between=between)


def random_end(rng: np.random.Generator) -> Table:
    """Random costs of an end. Some layouts are excluded, but not all."""
    end = rng.integers(0, 30, LAYOUTS).astype(float)
    end[(rng.random(LAYOUTS) < 0.3) & (np.arange(LAYOUTS) != rng.integers(LAYOUTS))] = np.inf
    return end


def made(cost: SharedCost, root: int, first: int, second: int) -> float:
    if root in (first, second) or first == second:
        return float(cost.prices[root, first if second == root else second])
    direct, between = cost.prices, cost.prices if cost.between is None else cost.between
    return float(
        min(
            direct[root, first] + min(direct[root, second], between[first, second]),
            direct[root, second] + between[second, first],
        )
    )


def totals(cost: SharedCost, root: Table, readers: list[Table]) -> dict[tuple[int, int, int], float]:
    found = {}
    for held in product(range(LAYOUTS), repeat=3):
        taken = sum(min(float(reader[layout]) for layout in held) for reader in readers)
        found[held] = float(root[held[0]]) + made(cost, *held) + taken
    return found


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(-4, 4))
def test_the_least_with_each_layout_at_each_end(seed: int, count: int, impossible: int) -> None:
    """All layouts of end `impossible` are excluded, if that end exists."""
    rng = np.random.default_rng(seed)
    cost, root, readers = random_cost(rng), random_end(rng), [random_end(rng) for _ in range(count)]
    if 0 <= impossible <= count:
        (root, *readers)[impossible][:] = np.inf
    expected = np.full((count + 1, LAYOUTS), np.inf)
    for held, total in totals(cost, root, readers).items():
        expected[0, held[0]] = min(expected[0, held[0]], total)
        for number, reader in enumerate(readers, 1):
            others = [r for i, r in enumerate(readers, 1) if i != number]
            rest = totals(cost, root, others)[held] if np.isfinite(total) or others else float(root[held[0]])
            for layout in held:
                expected[number, layout] = min(expected[number, layout], rest + float(reader[layout]))
    for few in (LAYOUTS, 0):
        alike = replace(cost, few=few)
        found = alike.least(root, readers)
        for number in range(count + 1):
            assert found[number] == pytest.approx(expected[number]), number
        assert alike.least_produced(root, readers) == pytest.approx(expected[0])


@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([0, LAYOUTS]))
def test_every_choice_within_a_price_is_found(seed: int, count: int, few: int) -> None:
    rng = np.random.default_rng(seed)
    cost, root, readers = random_cost(rng), random_end(rng), [random_end(rng) for _ in range(count)]
    cost = replace(cost, few=few)
    every = totals(cost, root, readers)
    least = min(every.values())
    room = least + float(rng.integers(0, 25))
    found = {tuple(held) for part in cost.within(room, root, readers) for held in part.tolist()}
    assert all(every[held] <= room for held in found)
    for held, total in every.items():
        layouts = sorted(set(held[1:]) - {held[0]})
        useful = all(any(np.isfinite(reader[layout]) for reader in readers) for layout in layouts)
        cheaper = [every[other] for other in every if other[0] == held[0] and set(other) < set(held)]
        if total <= room and useful and total < min(cheaper, default=np.inf):
            assert (held[0], *layouts, *[held[0]] * (2 - len(layouts))) in found


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_a_group_costs_what_each_of_its_numbers_does(seed: int, count: int, readers: int, partial: bool) -> None:
    """Ends outside of the group get the minimum over all members. A member with an excluded end is impossible."""
    rng = np.random.default_rng(seed)
    cost = random_cost(rng)
    if partial:
        cost = replace(cost, nothing=int(rng.integers(LAYOUTS)))
    grouped = [bool(rng.random() < 0.6) for _ in range(readers + 1)]
    rows = [[random_end(rng) for _ in range(count if own else 1)] for own in grouped]
    if rng.random() < 0.3:
        rows[int(rng.integers(len(rows)))][0][:] = np.inf
    known = tuple(grouped) if rng.random() < 0.5 else (*grouped[:1], *grouped[1:readers])
    if len(known) < len(grouped):
        grouped[-1], rows[-1] = False, rows[-1][:1]
    said = [np.concatenate(own) for own in rows]
    each = [[own[number if len(own) > 1 else 0] for own in rows] for number in range(count)]
    apart = [cost.least(first, rest) for first, *rest in each]
    group = GroupedCost(cost, known, count)
    for end, (own, least) in enumerate(zip(grouped, group.least(said[0], said[1:]), strict=True)):
        every = [found[end] for found in apart]
        expected = np.concatenate(every) if own else np.minimum.reduce(every)
        np.testing.assert_allclose(least, expected)
    alone = [cost.least_produced(first, rest) for first, *rest in each]
    expected = np.concatenate(alone) if grouped[0] else np.minimum.reduce(alone)
    np.testing.assert_allclose(group.least_produced(said[0], said[1:]), expected)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 40, 60), (50, 50, 50), (120, 7, 90), (90, 130, 30), (40, 30, 4000)])
def test_products_in_the_min_plus_semiring_have_the_least_sums_to_the_last_bit(sizes: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    rows, _, columns = sizes
    costs, prices = (rng.random(shape) * 10.0 ** rng.integers(-9, 2, shape) for shape in (sizes[:2], sizes[1:]))
    costs[rng.random(costs.shape) < 0.3] = np.inf
    prices[rng.random(prices.shape) < 0.3] = np.inf
    costs[:, -1] -= 1.0
    costs[0] = np.inf
    found = min_plus(costs, prices)
    assert found.shape == (rows, columns)
    for row in range(rows):
        assert np.array_equal(found[row], (costs[row, :, None] + prices).min(axis=0))
