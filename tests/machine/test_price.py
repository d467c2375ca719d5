"""Prices as piecewise-linear functions of bytes, against the minimum of the lines that they consist of."""

from __future__ import annotations

from math import inf
from random import Random

import numpy as np
import pytest

from unity_dsl.machine.price import AlgorithmPrice, LinkTime, Price, PriceTable, cheapest, least

COUNTS = (0.0, 1.0, 63.0, 64.0, 65.0, 1e3, 1e6)


def lines(rng: Random) -> list[AlgorithmPrice]:
    return [AlgorithmPrice(str(i), rng.random(), rng.random()) for i in range(rng.randint(1, 6))]


def in_pieces(rng: Random) -> Price:
    """A price with one line per range of bytes. It may rise or fall where a range ends."""
    starts = (0.0, *sorted(float(rng.randint(1, 1000)) for _ in range(rng.randint(0, 5))))
    return Price(tuple(AlgorithmPrice(str(i), rng.random(), rng.random()) for i in range(len(starts))), starts)


def counts(rng: Random, *prices: Price) -> list[float]:
    """Byte counts: fixed and random ones, the starts of pieces, and counts just before those."""
    starts = [start for price in prices for start in price.starts]
    return [
        *COUNTS,
        *(10 ** rng.uniform(-3, 3) for _ in range(20)),
        *starts,
        *(start - 0.5 for start in starts if start),
    ]


def test_a_sum_of_prices_is_the_sum_of_the_least() -> None:
    rng = Random(3)
    for _ in range(100):
        parts = [lines(rng) for _ in range(2)]
        first, second = map(cheapest, parts)
        for count in (0.0, *(10 ** rng.uniform(-3, 3) for _ in range(20))):
            least_of = [min(one.latency + one.per_byte * count for one in part) for part in parts]
            assert [first.seconds(count), second.seconds(count)] == pytest.approx(least_of)
            assert (first + second).seconds(count) == pytest.approx(sum(least_of))
            assert first.scaled(3.0).seconds(count) == pytest.approx(first.seconds(3.0 * count))
        assert len((first + second).algorithms) < len(first.algorithms) + len(second.algorithms)


def test_pieces_add_up_scale_and_have_a_least() -> None:
    rng = Random(4)
    for _ in range(200):
        prices = [in_pieces(rng) for _ in range(rng.randint(1, 4))]
        together, total = least(prices), sum(prices, Price())
        for count in counts(rng, *prices):
            every = [price.seconds(count) for price in prices]
            assert together.seconds(count) == pytest.approx(min(every))
            assert total.seconds(count) == pytest.approx(sum(every))
            assert together.scaled(0.25).seconds(4 * count) == pytest.approx(min(every))
        assert list(together.starts) == sorted(set(together.starts)) and together.starts[0] == 0
        assert prices[0].scaled(0.0).seconds(1e9) == prices[0].seconds(0.0)


def test_the_least_of_lines_is_their_envelope() -> None:
    rng = Random(5)
    for _ in range(100):
        some = lines(rng)
        assert least([Price((line,)) for line in some]) == cheapest(some)


def test_many_are_priced_at_once() -> None:
    rng = Random(6)
    prices = [in_pieces(rng) for _ in range(20)]
    table = PriceTable(prices)
    number = np.array([[rng.randrange(20) for _ in range(50)] for _ in range(3)])
    count = np.array([[rng.choice(counts(rng, prices[one])) for one in row] for row in number])
    found = table.seconds(number, count)
    assert found.shape == number.shape
    for place in np.ndindex(*number.shape):
        assert found[place] == pytest.approx(prices[number[place]].seconds(count[place]), rel=1e-12)
    assert PriceTable([]).seconds(np.zeros(0, dtype=np.intp), np.zeros(0)).shape == (0,)


def test_a_transfer_is_of_the_piece_of_its_bytes() -> None:
    slow = AlgorithmPrice("slow", 1.0, 2.0, (LinkTime(0, 1.5),), 3.0)
    fast = AlgorithmPrice("fast", 5.0, 1.0, (LinkTime(1, 0.5),), 1.0)
    price = Price((slow, fast), (0.0, 10.0))
    before, after = price.transfer(9.0), price.transfer(10.0)
    assert (before.algorithm, before.seconds, before.latency, before.sent) == ("slow", 19.0, 1.0, 27.0)
    assert (after.algorithm, after.seconds, after.links) == ("fast", 15.0, (LinkTime(1, 5.0),))
    assert price.algorithm(inf).name == "fast"
