"""Bounds are valid: the relaxation is below the optimum, and what it excludes is in no plan within the gap."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.search.cost_network.bucket_elimination import eliminate
from unity_dsl.search.cost_network.message_passing import Hub, Link, Network, Relaxation
from unity_dsl.search.cost_network.shared_conversions import SharedCost


def random_network(seed: int) -> Network:
    """A random network. Some links have fewer keys than values, some values have two keys, some pairs do not fit."""
    rng = np.random.default_rng(seed)
    network = Network()
    for variable in range(rng.integers(1, 6)):
        network.add(rng.integers(0, 10, rng.integers(1, 5)).astype(float), f"v{variable}")
    count = len(network.costs)
    for _ in range(rng.integers(0, 8)):
        first, second = rng.integers(0, count, 2)
        if first == second:
            continue
        keys = [rng.integers(0, 3, (network.sizes[v], rng.integers(1, 3))) for v in (first, second)]
        cost = rng.integers(0, 10, (3, 3)).astype(float)
        cost[rng.random((3, 3)) < 0.2] = np.inf
        network.links.append(Link(int(first), int(second), *keys, cost))
    return network


def best_with(network: Network) -> tuple[float, list[np.ndarray]]:
    """The optimum, and the optimum given each value of each variable, by trying everything."""
    tables = [link.table() for link in network.links]
    found = [np.full(size, np.inf) for size in network.sizes]
    for values in product(*map(range, network.sizes)):
        total = sum(cost[value] for cost, value in zip(network.costs, values, strict=True))
        pairs = zip(network.links, tables, strict=True)
        total += sum(table[values[link.first], values[link.second]] for link, table in pairs)
        for marginal, value in zip(found, values, strict=True):
            marginal[value] = min(marginal[value], total)
    return min(float(marginal.min()) for marginal in found), found


@given(st.integers(0, 10**6), st.integers(0, 4))
def test_the_bound_is_below_the_optimum_of_every_value(seed: int, sweeps: int) -> None:
    network = random_network(seed)
    optimum, marginals = best_with(network)
    assert float(eliminate(network.sizes, network.factors()).table) == optimum
    relaxation = Relaxation(random_network(seed))
    for _ in range(sweeps):
        relaxation.sweep()
    lower, slacks = relaxation.bound()
    assert lower <= optimum + 1e-6 or optimum == np.inf
    if optimum < np.inf:
        for slack, marginal in zip(slacks, marginals, strict=True):
            assert (lower + slack <= marginal + 1e-6).all()


def test_trees_are_bounded_tightly() -> None:
    network = Network()
    rng = np.random.default_rng(0)
    for variable in range(6):
        network.add(rng.random(4), f"v{variable}")
    own = np.arange(4)[:, None]
    network.links = [Link(variable // 2, variable + 1, own, own, rng.random((4, 4))) for variable in range(5)]
    optimum, _ = best_with(network)
    relaxation = Relaxation(network)
    for _ in range(10):
        relaxation.sweep()
    assert relaxation.bound()[0] == pytest.approx(optimum)


@pytest.mark.parametrize("impossible", [0, 1, 2])
def test_what_is_impossible_elsewhere_lowers_no_bound_of_a_hub(impossible: int) -> None:
    """A tensor with two layouts and two readers. One value of one end does not fit the variable that the end is linked
    to.
    """
    rng, network = np.random.default_rng(impossible), Network()
    for variable in range(4):
        network.add(rng.random(2), f"v{variable}")
    own, prices = np.arange(2)[:, None], rng.random((2, 2)) * (1 - np.eye(2))
    fits = rng.random((2, 2))
    fits[1] = np.inf
    network.links = [Link(impossible, 3, own, own, fits)]
    network.hubs = [Hub((0, 1, 2), (np.arange(2),) * 3, SharedCost(prices))]
    optimum = np.inf
    for values in product(range(2), repeat=4):
        made, *read = values[:3]
        converted = prices[made, 1 - made] if 1 - made in read else 0.0
        own_costs = sum(cost[value] for cost, value in zip(network.costs, values, strict=True))
        optimum = min(optimum, own_costs + fits[values[impossible], values[3]] + converted)
    relaxation = Relaxation(network)
    for _ in range(10):
        relaxation.sweep()
    lower, slacks = relaxation.bound()
    assert lower == pytest.approx(optimum)
    assert slacks[impossible][1] == np.inf
