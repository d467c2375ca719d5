"""Prices as functions of bytes: the cheapest of several algorithms, each with a latency and a rate in a range."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LinkTime:
    """Seconds for which a collective occupies the links of one level; in a price, seconds per byte."""

    level: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """A conversion step for a given number of bytes: `seconds` is its price, including the fixed `latency`.

    `links` is the time for which each level's links are busy, `sent` the number of bytes that a device sends.
    """

    algorithm: str
    seconds: float
    latency: float
    links: tuple[LinkTime, ...]
    sent: float


@dataclass(frozen=True, slots=True)
class AlgorithmPrice:
    """The cost of one algorithm for n bytes: `latency + per_byte * n` seconds. `links` and `sent` are per byte."""

    name: str = ""
    latency: float = 0.0
    per_byte: float = 0.0
    links: tuple[LinkTime, ...] = ()
    sent: float = 0.0

    def __add__(self, other: AlgorithmPrice) -> AlgorithmPrice:
        """The cost of both algorithms, one after the other."""
        busy: dict[int, float] = {}
        for link in (*self.links, *other.links):
            busy[link.level] = busy.get(link.level, 0.0) + link.seconds
        return AlgorithmPrice(
            ", ".join(filter(None, (self.name, other.name))),
            self.latency + other.latency,
            self.per_byte + other.per_byte,
            tuple(LinkTime(level, seconds) for level, seconds in sorted(busy.items())),
            self.sent + other.sent,
        )

    def scaled(self, factor: float) -> AlgorithmPrice:
        """The cost as a function of another size, each byte of which counts as `factor` bytes."""
        links = tuple(LinkTime(link.level, link.seconds * factor) for link in self.links)
        return replace(self, per_byte=self.per_byte * factor, links=links, sent=self.sent * factor)

    def seconds(self, count: float) -> float:
        return self.latency + self.per_byte * count


@dataclass(frozen=True, slots=True)
class Price:
    """A price: seconds for n bytes by the algorithm that is the fastest for them, piecewise linear.

    `algorithms[i]` applies from `starts[i]` bytes on, up to the next start; the first start is 0. If every algorithm is
    a line for all bytes, the function is concave (`cheapest`). NCCL's estimates of rings and trees have steps, at which
    the price may rise or fall.
    """

    algorithms: tuple[AlgorithmPrice, ...] = (AlgorithmPrice(),)
    starts: tuple[float, ...] = (0.0,)

    def __add__(self, other: Price) -> Price:
        starts = sorted({*self.starts, *other.starts})
        return _joined((start, self.algorithm(start) + other.algorithm(start)) for start in starts)

    def scaled(self, factor: float) -> Price:
        """The price as a function of another size, each byte of which counts as `factor` bytes."""
        if not factor:
            return Price((self.algorithms[0].scaled(factor),))
        algorithms = tuple(algorithm.scaled(factor) for algorithm in self.algorithms)
        return Price(algorithms, tuple(start / factor for start in self.starts))

    def algorithm(self, count: float) -> AlgorithmPrice:
        """The fastest algorithm for `count` bytes."""
        return self.algorithms[bisect_right(self.starts, count) - 1]

    def seconds(self, count: float) -> float:
        return self.algorithm(count).seconds(count)

    def transfer(self, count: float) -> Transfer:
        """The transfer of `count` bytes, with its time on each level of the interconnect."""
        found = self.algorithm(count).scaled(count)
        return Transfer(found.name, found.latency + found.per_byte, found.latency, found.links, found.sent)


def cheapest(algorithms: Iterable[AlgorithmPrice]) -> Price:
    """The lower envelope of lines: the algorithms that are the fastest for some number of bytes, by latency."""
    found: list[AlgorithmPrice] = []
    starts: list[float] = []
    for algorithm in sorted(algorithms, key=lambda algorithm: (algorithm.latency, algorithm.per_byte)):
        if found and algorithm.per_byte >= found[-1].per_byte:
            continue
        start = _equal_at(found[-1], algorithm) if found else 0.0
        while len(found) > 1 and start <= starts[-1]:
            found.pop()
            starts.pop()
            start = _equal_at(found[-1], algorithm)
        found.append(algorithm)
        starts.append(start)
    return Price(tuple(found), tuple(starts))


def least(prices: Sequence[Price]) -> Price:
    """The minimum of several prices for every number of bytes: their lower envelope in each range in which all are
    lines.
    """
    starts = sorted({start for price in prices for start in price.starts})
    return _joined(_least(prices, starts))


def _least(prices: Sequence[Price], starts: Sequence[float]) -> Iterator[tuple[float, AlgorithmPrice]]:
    for start, end in zip(starts, (*starts[1:], inf), strict=True):
        found = cheapest(price.algorithm(start) for price in prices)
        first = bisect_right(found.starts, start) - 1
        yield start, found.algorithms[first]
        for further, algorithm in zip(found.starts[first + 1 :], found.algorithms[first + 1 :], strict=True):
            if further < end:
                yield further, algorithm


def _joined(pieces: Iterable[tuple[float, AlgorithmPrice]]) -> Price:
    """The price made of pieces in order; equal neighbours are merged."""
    starts: list[float] = []
    algorithms: list[AlgorithmPrice] = []
    for start, algorithm in pieces:
        if not algorithms or algorithm != algorithms[-1]:
            starts.append(start)
            algorithms.append(algorithm)
    return Price(tuple(algorithms), tuple(starts))


def _equal_at(first: AlgorithmPrice, second: AlgorithmPrice) -> float:
    """The number of bytes from which on `second`, of higher latency, is the faster one."""
    return (second.latency - first.latency) / (first.per_byte - second.per_byte)


class PriceTable:
    """Several prices as arrays, to price many numbers of bytes at once."""

    def __init__(self, prices: Sequence[Price]) -> None:
        shape = len(prices), max((len(price.starts) for price in prices), default=0)
        self._starts, self._latency, self._per_byte = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape)
        for row, price in enumerate(prices):
            pieces = len(price.starts)
            self._starts[row, :pieces] = price.starts
            self._latency[row, :pieces] = [algorithm.latency for algorithm in price.algorithms]
            self._per_byte[row, :pieces] = [algorithm.per_byte for algorithm in price.algorithms]

    def seconds(self, number: Places, count: Table) -> Table:
        """Seconds by the prices of these numbers, each for its own count of bytes."""
        piece = (self._starts[number] <= count[..., None]).sum(axis=-1) - 1
        found: Table = self._latency[number, piece] + self._per_byte[number, piece] * count
        return found
