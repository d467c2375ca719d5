"""Bounds hold: the relaxation is below the optimum, and what it excludes is in no plan within the gap."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.search.cost_network.bucket_elimination import eliminate
from unity_dsl.search.cost_network.message_passing import Link, Network, Relaxation


def random_network(seed: int) -> Network:
    """Some links go through fewer keys than values, some values have two keys, some pairs do not fit."""
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
    """The optimum, and per value of each variable the optimum with it, by trying everything."""
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
