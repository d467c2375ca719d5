"""Prices as functions of bytes: the least of what several algorithms take, each a latency and a rate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product


@dataclass(frozen=True, slots=True)
class LinkTime:
    """Seconds that a collective keeps the links of one level busy; in a price, seconds per byte."""

    level: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """A step of a conversion of so many bytes: `seconds` are its price, of which `latency` does not depend on them.

    `links` tells for how long it keeps the links of each level busy, `sent` is how many bytes a device sends.
    """

    algorithm: str
    seconds: float
    latency: float
    links: tuple[LinkTime, ...]
    sent: float


@dataclass(frozen=True, slots=True)
class AlgorithmPrice:
    """Seconds that an algorithm takes for n bytes: `latency + per_byte * n`. `links` and `sent` are per byte."""

    name: str = ""
    latency: float = 0.0
    per_byte: float = 0.0
    links: tuple[LinkTime, ...] = ()
    sent: float = 0.0

    def __add__(self, other: AlgorithmPrice) -> AlgorithmPrice:
        """One after the other."""
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
        """In terms of a tensor of which each counted byte is `factor` bytes."""
        links = tuple(LinkTime(link.level, link.seconds * factor) for link in self.links)
        return replace(self, per_byte=self.per_byte * factor, links=links, sent=self.sent * factor)

    def seconds(self, count: float) -> float:
        return self.latency + self.per_byte * count


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds of something done to n bytes, by the algorithm that is the fastest for them: a concave function of n."""

    algorithms: tuple[AlgorithmPrice, ...] = (AlgorithmPrice(),)

    def __add__(self, other: Price) -> Price:
        return cheapest(first + second for first, second in product(self.algorithms, other.algorithms))

    def scaled(self, factor: float) -> Price:
        """The price in terms of a tensor of which each counted byte is `factor` bytes."""
        return Price(tuple(algorithm.scaled(factor) for algorithm in self.algorithms))

    def algorithm(self, count: float) -> AlgorithmPrice:
        """The fastest for so many bytes."""
        return min(self.algorithms, key=lambda algorithm: algorithm.seconds(count))

    def seconds(self, count: float) -> float:
        return min(algorithm.seconds(count) for algorithm in self.algorithms)

    def transfer(self, count: float) -> Transfer:
        """What is done to `count` bytes, by level of the interconnect."""
        found = self.algorithm(count).scaled(count)
        return Transfer(found.name, found.latency + found.per_byte, found.latency, found.links, found.sent)


def cheapest(algorithms: Iterable[AlgorithmPrice]) -> Price:
    """The lower envelope: those algorithms that are the fastest for some number of bytes, by latency."""
    found: list[AlgorithmPrice] = []
    for algorithm in sorted(algorithms, key=lambda algorithm: (algorithm.latency, algorithm.per_byte)):
        if found and algorithm.per_byte >= found[-1].per_byte:
            continue
        while len(found) > 1 and _equal_at(found[-2], algorithm) <= _equal_at(found[-2], found[-1]):
            found.pop()
        found.append(algorithm)
    return Price(tuple(found))


def _equal_at(first: AlgorithmPrice, second: AlgorithmPrice) -> float:
    """The number of bytes from which on the second, of higher latency, is the faster one."""
    return (second.latency - first.latency) / (first.per_byte - second.per_byte)
