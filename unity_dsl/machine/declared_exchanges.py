"""Exchanges that enter or leave layouts with declared cuts: which there are, how much they move, what they cost."""

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
    """Exchanges, of one shape: `copies` are latency and price per byte of theirs, infinite where there is no exchange;
    what is sent has a price by `group` of mesh axes, 0 where nothing is, for the part that a device has `received`.
    """

    sending: PriceTable
    group: Places
    received: Table
    copies: Table

    def seconds(self, count: float) -> Table:
        """Of a tensor of so many bytes. `TIE`s are included."""
        sent = self.sending.seconds(self.group, self.received * count)
        found: Table = self.copies[0] + self.copies[1] * count + sent + TIE
        return found


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
        """Between any two of different layouts of a tensor of that shape, which are in these places of a table."""
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
        """Exchanges of a tensor of that shape, from and to these layouts; there is none where both are one."""
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
        """By group of mesh axes as a bit set; nothing is sent in the first."""
        return PriceTable(
            [Price(), *(permutation_price(axes, self.mesh, self.machine) for axes in groups_of(self.mesh))]
        )

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
