"""Parts without the variables that depend on others, against the full parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.exact_search.variable_contraction import contract
from unity_dsl.search.folded_solver.exact_minimum import Solved
from unity_dsl.search.folded_solver.lower_bounds import bound_part
from unity_dsl.search.folded_solver.problem_part import Part, Port, Repeat, Tensor, everything

from ..closed_prices import closed
from .test_bounded_search import assignments, least, own_cost, random_part, some_domain

LAYOUTS = 5


@pytest.mark.parametrize("seed", range(60))
def test_the_rest_costs_the_same(seed: int) -> None:
    """Its best values, together with those of the contracted variables, are the optimum."""
    rng = np.random.default_rng(seed)
    body = random_part(rng, int(rng.integers(3, 5)), body=True) if seed % 3 == 0 else None
    part = random_part(rng, int(rng.integers(2, 6)), repeat=body)
    domains = some_domain(rng, part)
    if seed % 3 == 0:
        domains = everything(part)
    costs = [np.where(mask, cost, np.inf) for mask, cost in zip(domains.masks, part.costs, strict=True)]
    part = replace(part, costs=tuple(costs))
    cheapest = least(part, 2)
    contracted = contract(part, domains)
    assert least(contracted.part, 2) == pytest.approx(cheapest)
    if not part.repeats and np.isfinite(cheapest):
        values = min(assignments(contracted.part), key=lambda found: own_cost(contracted.part, found, 2))
        restored = contracted.restored(Solved(values))
        assert own_cost(part, restored.values, 2) == pytest.approx(cheapest)


def test_a_chain_is_one_price_between_its_ends() -> None:
    """Ten activations in a row between two variables that read a shared tensor."""
    rng = np.random.default_rng(0)
    count = 12
    costs = tuple(rng.random(LAYOUTS) for _ in range(count))
    ports = [Port(number, np.arange(LAYOUTS), LAYOUTS) for number in range(count)]
    tables = [rng.random((LAYOUTS, LAYOUTS)) for _ in range(count)]
    chain = [Tensor(f"t{number}", ports[number], (ports[number + 1],), tables[number]) for number in range(count - 1)]
    ends = Tensor("shared", ports[-1], (ports[0], ports[-1]), tables[-1])
    part = Part(costs, tuple(map(str, range(count))), (*chain, ends))
    contracted = contract(part, everything(part))
    assert [len(mask) > 1 for mask in contracted.domains.masks] == [True, *[False] * (count - 2), True]
    assert len(contracted.part.tensors) == 2


def test_what_hangs_on_one_other_is_part_of_its_cost() -> None:
    """A statistic and the buffer that keeps it: two tensors between two variables."""
    rng = np.random.default_rng(1)
    ports = [Port(number, np.arange(LAYOUTS), LAYOUTS) for number in range(3)]
    tables = [rng.random((LAYOUTS, LAYOUTS)) for _ in range(3)]
    tensors = (
        Tensor("made", ports[0], (ports[1],), tables[0]),
        Tensor("kept", ports[2], (ports[1],), tables[1]),
        Tensor("becomes", ports[1], (ports[2],), tables[2]),
    )
    part = Part(tuple(rng.random(LAYOUTS) for _ in range(3)), ("a", "b", "c"), tensors)
    contracted = contract(part, everything(part))
    assert sum(len(mask) > 1 for mask in contracted.domains.masks) == 1
    totals = [
        part.costs[0][a] + part.costs[1][b] + part.costs[2][c] + tables[0][a, b] + tables[1][c, b] + tables[2][b, c]
        for a in range(LAYOUTS)
        for b in range(LAYOUTS)
        for c in range(LAYOUTS)
    ]
    assert optimise(part, everything(part)).cost == pytest.approx(min(totals))


def test_a_contracted_price_between_tensors_of_other_layouts_is_bounded() -> None:
    """In a body: a chain from a carried tensor to one with fewer layouts, so layout numbers do not match."""
    rng = np.random.default_rng(2)
    few = 2
    entry, exit_, left = (
        Port(number, np.arange(count), count) for number, count in ((0, LAYOUTS), (1, LAYOUTS), (2, few))
    )
    asked, made = Port(3, np.arange(LAYOUTS), LAYOUTS), Port(3, rng.integers(0, few, LAYOUTS), few)
    prices, after = (closed(np.where(np.eye(n), 0.0, rng.random((n, n)))) for n in (LAYOUTS, few))
    tensors = (Tensor("entry", entry, (asked,), prices), Tensor("made", made, (left,), after))
    costs = (np.zeros(LAYOUTS), rng.random(LAYOUTS), np.zeros(few), rng.random(LAYOUTS))
    body = Part(costs, ("entry", "exit", "left", "node"), tensors, (), (entry,), (exit_,), (left,))
    x, y, z = (Port(number, np.arange(count), count) for number, count in ((0, LAYOUTS), (1, LAYOUTS), (2, few)))
    outside = (rng.random(LAYOUTS), np.zeros(LAYOUTS), rng.random(few))
    whole = Part(outside, ("x", "y", "z"), (), (Repeat("r", 3, body, (x,), (y,), (z,)),))
    contracted = contract(whole, everything(whole))
    assert bound_part(contracted.part, contracted.domains, sweeps=4).least <= least(whole, 2) * (1 + 1e-9)


def test_a_reader_that_may_ask_for_nothing_of_a_tensor_that_is_made() -> None:
    """The layout "nothing" exists for readers, not for the producer. The producer and one reader have no choice."""
    rng = np.random.default_rng(3)
    made, asked = LAYOUTS, LAYOUTS + 1
    prices = np.zeros((asked, asked))
    prices[:made, :made] = closed(np.where(np.eye(made), 0.0, rng.random((made, made))))
    prices[made, :made] = np.inf
    ports = [Port(number, np.arange(count), count) for number, count in ((0, made), (1, asked), (2, asked))]
    alone = [np.where(np.arange(count) == only, 0.0, np.inf) for count, only in ((made, 0), (asked, 1))]
    tensor = Tensor("shared", ports[0], (ports[1], ports[2]), prices, nothing=made)
    part = Part((*alone, np.zeros(asked)), ("producer", "reader", "other"), (tensor,))

    def price(value: int) -> float:
        if value == made:
            return float(prices[0, 1])
        first = prices[0, 1] + min(prices[0, value], prices[1, value])
        return float(min(first, prices[0, value] + prices[value, 1]))

    for value in range(asked):
        given = replace(part, costs=(*alone, np.where(np.arange(asked) == value, 0.0, np.inf)))
        assert optimise(given, everything(given)).cost == pytest.approx(price(value)), value
    assert optimise(part, everything(part)).cost == pytest.approx(min(map(price, range(asked))))
