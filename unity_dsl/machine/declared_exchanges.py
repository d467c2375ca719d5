"""Exchanges that enter or leave layouts with declared cuts: which exist, their volume, and their price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from ..graph.collective_steps import Step, StepKind
from ..graph.layout import Layout, Mesh
from ..graph.layout_exchange import Received
from ..index.library import Library
from .collective_price import exchange_copies, local_fraction, price_exchange
from .group_price import permutation_price
from .machine import Machine
from .price import Places, Price, PriceTable, Table
from .step_prices import TIE, groups_of, partners_of

Pair = tuple[Layout, Layout]


@dataclass(frozen=True)
class _Priced:
    """Prices of exchanges, in arrays of one shape. `copies` are latency and price per byte of their copies, infinite if
    there is no exchange. `group` is the group of mesh axes by which `sending` prices the communication, 0 if nothing is
    sent. `received` is the fraction of the tensor that a device receives.
    """

    sending: PriceTable
    group: Places
    received: Table
    copies: Table

    def seconds(self, count: float) -> Table:
        """Seconds for a tensor of `count` bytes, `TIE`s included."""
        sent = self.sending.seconds(self.group, self.received * count)
        found: Table = self.copies[0] + self.copies[1] * count + sent + TIE
        return found


@dataclass(frozen=True)
class Ends(_Priced):
    """The points where paths from or to layouts with declared cuts cross the network's border: `number` is the index of
    a layout in the network, and the prices are those of the exchange with it. Shape [layouts, ends]; prices are
    infinite where a layout has fewer ends than another.
    """

    number: Places


@dataclass(frozen=True)
class Direct(_Priced):
    """Exchanges between two layouts with declared cuts, given by their places in a table."""

    rows: Places
    columns: Places


class Exchanges:
    """Exchanges on a mesh of a machine between layouts at least one of which has declared cuts."""

    def __init__(self, mesh: Mesh, machine: Machine, library: Library) -> None:
        self.mesh = mesh
        self.machine = machine
        self._received = Received(mesh, library)

    def ends(self, beside: Sequence[Sequence[tuple[int, Pair]]], shape: tuple[int, ...]) -> Ends:
        """The ends of some layouts of a tensor, each given by the adjacent layouts of the network and the exchanges
        with them.
        """
        every = [(row, place, *end) for row, ends in enumerate(beside) for place, end in enumerate(ends)]
        size = len(beside), max(map(len, beside), default=0)
        number, group = np.zeros(size, dtype=np.intp), np.zeros(size, dtype=np.intp)
        received, copies = np.zeros(size), np.zeros((2, *size))
        copies[0] = np.inf
        if every:
            rows, places, numbers, pairs = zip(*every, strict=True)
            number[rows, places] = numbers
            found = self._of_pairs(pairs, shape)
            group[rows, places], received[rows, places] = found.group, found.received
            copies[:, rows, places] = found.copies
        return Ends(self._sending, group, received, copies, number)

    def direct(self, layouts: Sequence[Layout], places: Sequence[int], shape: tuple[int, ...]) -> Direct:
        """The exchanges between any two of these layouts of a tensor, which have these `places` in a table."""
        given = [(place, layout) for place, layout in zip(places, layouts, strict=True) if _is_direct(layout)]
        sources, targets = np.nonzero(~np.eye(len(given), dtype=bool))
        found = self._priced([layout for _, layout in given], sources, targets, shape)
        at = np.array([place for place, _ in given], dtype=np.intp)
        return Direct(found.sending, found.group, found.received, found.copies, at[sources], at[targets])

    def _of_pairs(self, pairs: Sequence[Pair], shape: tuple[int, ...]) -> _Priced:
        layouts = {layout: place for place, layout in enumerate(dict.fromkeys(chain.from_iterable(pairs)))}
        sources, targets = (np.array([layouts[pair[end]] for pair in pairs]) for end in (0, 1))
        return self._priced(list(layouts), sources, targets, shape)

    def _priced(self, layouts: Sequence[Layout], sources: Places, targets: Places, shape: tuple[int, ...]) -> _Priced:
        """Prices of exchanges of a tensor between pairs of these layouts; there is none between equal layouts."""
        count = len(sources)
        group, received = np.zeros(count, dtype=np.intp), np.zeros(count)
        copies = np.zeros((2, count))
        copies[0] = np.inf
        if count:
            changed, fractions = self._received.fractions(layouts, sources, targets, shape, evenly=True)
            held = np.array([local_fraction(layout, self.mesh) for layout in layouts])
            some = np.flatnonzero(changed > 0)
            received[some] = fractions[some]
            group[some] = np.where(received[some] != 0, changed[some], 0)
            moved = received[some], held[sources[some]], held[targets[some]]
            copies[:, some] = exchange_copies(
                self.machine, *moved, partners_of(self.mesh, self.machine).take(group[some])
            )
        return _Priced(self._sending, group, received, copies)

    @cached_property
    def _sending(self) -> PriceTable:
        """Prices by group of mesh axes as a bit set; group 0 sends nothing."""
        return PriceTable(
            [Price(), *(permutation_price(axes, self.mesh, self.machine) for axes in groups_of(self.mesh))]
        )

    def price(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> Price:
        """The price of one exchange, with the links that it keeps busy."""
        received = self.received(source, target, shape)
        held = [local_fraction(layout, self.mesh) for layout in (source, target)]
        return price_exchange(_changed(source, target), received, self.mesh, self.machine, *held)

    def received(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> float:
        """The fraction of the tensor that a device receives from others."""
        return float(self._received.fractions([source, target], np.array([0]), np.array([1]), shape, evenly=True)[1][0])

    def step(self, source: Layout, target: Layout) -> Step:
        return Step(StepKind.EXCHANGE, _changed(source, target), source=source, target=target)


def _is_direct(layout: Layout) -> bool:
    """Whether a single exchange converts to and from other such layouts: the cuts are declared and do not overlap. An
    exchange also sums partial values.
    """
    return bool(layout.declared_dims) and not layout.overlaps


def _changed(source: Layout, target: Layout) -> tuple[int, ...]:
    return tuple(axis for axis, (a, b) in enumerate(zip(source.kinds, target.kinds, strict=True)) if a != b)
