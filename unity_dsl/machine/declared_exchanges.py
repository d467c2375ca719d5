"""Exchanges that enter or leave layouts with declared cuts: which there are, how much they move, what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..graph.collective_steps import Step, StepKind
from ..graph.layout import Layout, Mesh
from ..graph.layout_exchange import Received
from ..index.library import Library
from .collective_price import local_fraction, price_exchange, price_exchanges
from .machine import Machine
from .price import Price
from .step_prices import TIE, Places, Table, axes_of

Pair = tuple[Layout, Layout]


@dataclass(frozen=True)
class _Priced:
    """Latency and price per byte of exchanges, of one shape."""

    latency: Table
    per_byte: Table

    def seconds(self, count: float) -> Table:
        """Of a tensor of so many bytes. `TIE`s are included."""
        return (self.latency + self.per_byte * count) + TIE


@dataclass(frozen=True)
class Ends(_Priced):
    """Where paths from or to layouts with declared cuts leave or enter the network: layouts there by `number`, and the
    exchanges with these. Shape [layouts, ends]; infinite where a layout has fewer ends than another.
    """

    number: Places


@dataclass(frozen=True)
class Direct(_Priced):
    """Exchanges between two layouts with declared cuts: the layouts' places in a table."""

    rows: Places
    columns: Places


class Exchanges:
    """Exchanges on a mesh of a machine between layouts of which one at least has declared cuts."""

    def __init__(self, mesh: Mesh, machine: Machine, library: Library) -> None:
        self.mesh = mesh
        self.machine = machine
        self._received = Received(mesh, library)

    def ends(self, beside: Sequence[Sequence[tuple[int, Pair]]], shape: tuple[int, ...]) -> Ends:
        """Of layouts of a tensor of that shape, given by the network's layouts beside them and the exchanges."""
        every = [(row, place, *end) for row, ends in enumerate(beside) for place, end in enumerate(ends)]
        size = len(beside), max(map(len, beside), default=0)
        number, latency, per_byte = np.zeros(size, dtype=np.intp), np.full(size, np.inf), np.zeros(size)
        if every:
            rows, places, numbers, pairs = zip(*every, strict=True)
            number[rows, places] = numbers
            latency[rows, places], per_byte[rows, places] = self._prices_of(pairs, shape)
        return Ends(latency, per_byte, number)

    def direct(self, layouts: Sequence[Layout], places: Sequence[int], shape: tuple[int, ...]) -> Direct:
        """Between any two of different layouts of a tensor of that shape, which are in these places of a table."""
        given = [(place, layout) for place, layout in zip(places, layouts, strict=True) if _is_direct(layout)]
        size = len(given)
        sources, targets = np.nonzero(~np.eye(size, dtype=bool))
        latency, per_byte = self._prices([layout for _, layout in given], sources, targets, shape)
        at = np.array([place for place, _ in given], dtype=np.intp)
        return Direct(latency, per_byte, at[sources], at[targets])

    def _prices_of(self, pairs: Sequence[Pair], shape: tuple[int, ...]) -> Table:
        layouts = {layout: place for place, layout in enumerate(dict.fromkeys(chain.from_iterable(pairs)))}
        sources, targets = (np.array([layouts[pair[end]] for pair in pairs]) for end in (0, 1))
        return self._prices(list(layouts), sources, targets, shape)

    def _prices(self, layouts: Sequence[Layout], sources: Places, targets: Places, shape: tuple[int, ...]) -> Table:
        """Latency and price per byte of exchanges of a tensor of that shape, from and to these layouts: infinite
        where both are one. Shape [2, exchanges].
        """
        found = np.zeros((2, len(sources)))
        found[0] = np.inf
        if len(sources):
            groups, received = self._received.fractions(layouts, sources, targets, shape, evenly=True)
            held = np.array([local_fraction(layout, self.mesh) for layout in layouts])
            for group in np.unique(groups[groups > 0]).tolist():
                some = groups == group
                moved = received[some], held[sources[some]], held[targets[some]]
                found[:, some] = price_exchanges(axes_of(group), self.mesh, self.machine, *moved)
        return found

    def price(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> Price:
        """The price of one of them, by the links that it keeps busy."""
        received = self.received(source, target, shape)
        held = [local_fraction(layout, self.mesh) for layout in (source, target)]
        return price_exchange(_changed(source, target), received, self.mesh, self.machine, *held)

    def received(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> float:
        """The part of the tensor that a device takes from others, by the transfers."""
        return float(self._received.fractions([source, target], np.array([0]), np.array([1]), shape, evenly=True)[1][0])

    def step(self, source: Layout, target: Layout) -> Step:
        return Step(StepKind.EXCHANGE, _changed(source, target), source=source, target=target)


def _is_direct(layout: Layout) -> bool:
    """Whether one exchange converts to and from other such layouts: its cuts are declared and do not overlap. Sums are
    part of the exchange.
    """
    return bool(layout.declared_dims) and not layout.overlaps


def _changed(source: Layout, target: Layout) -> tuple[int, ...]:
    return tuple(axis for axis, (a, b) in enumerate(zip(source.kinds, target.kinds, strict=True)) if a != b)
