"""Exchanges that enter or leave layouts with declared cuts: which there are, how much they move, what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..graph.collective_steps import Step, StepKind
from ..graph.layout import Cut, Invariant, Layout, Mesh
from ..graph.layout_exchange import Received
from ..index.library import Library
from .collective_price import local_fraction, price_exchange, price_exchanges
from .machine import Machine
from .price import Price
from .step_prices import TIE, Places, Table

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
            latency[rows, places], per_byte[rows, places] = self.prices(pairs, shape)
        return Ends(latency, per_byte, number)

    def direct(self, layouts: Sequence[Layout], places: Sequence[int], shape: tuple[int, ...]) -> Direct:
        """Between any two of layouts of a tensor of that shape, which are in these places of a table."""
        given = [(place, layout) for place, layout in zip(places, layouts, strict=True) if _is_direct(layout)]
        every = [(i, j, (a, b)) for i, a in given for j, b in given if a != b]
        rows, columns = (np.array([pair[end] for pair in every], dtype=np.intp) for end in (0, 1))
        latency, per_byte = self.prices([pair for _, _, pair in every], shape)
        return Direct(latency, per_byte, rows, columns)

    def prices(self, pairs: Sequence[Pair], shape: tuple[int, ...]) -> Table:
        """Latency and price per byte of the exchanges of a tensor of that shape. Shape [2, pairs]."""
        moved = [self.taken(source, target, shape) for source, target in pairs]
        held = np.array([[local_fraction(layout, self.mesh) for layout in pair] for pair in pairs]).reshape(-1, 2)
        received, found = np.array([part for _, part in moved]), np.zeros((2, len(pairs)))
        places: dict[tuple[int, ...], list[int]] = {}
        for place, (changed, _) in enumerate(moved):
            places.setdefault(changed, []).append(place)
        for changed, some in places.items():
            found[:, some] = price_exchanges(changed, self.mesh, self.machine, received[some], *held[some].T)
        return found

    def price(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> Price:
        """The price of one of them, by the links that it keeps busy."""
        changed, received = self.taken(source, target, shape)
        held = [local_fraction(layout, self.mesh) for layout in (source, target)]
        return price_exchange(changed, received, self.mesh, self.machine, *held)

    def step(self, source: Layout, target: Layout) -> Step:
        return Step(StepKind.EXCHANGE, _changed(source, target), source=source, target=target)

    def taken(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """The mesh axes that change, and the part of the tensor that a device takes from others, by the transfers. Mesh
        axes that do not change and cut other dimensions only leave less of the tensor.
        """
        pairs = list(zip(source.kinds, target.kinds, strict=True))
        changed = _changed(source, target)
        dims = {kind.dim for axis in changed for kind in pairs[axis] if isinstance(kind, Cut)}
        aside = [a == b and not (isinstance(a, Cut) and a.dim in dims) for a, b in pairs]
        before, after = (
            Layout(tuple(Invariant() if out else kind for out, kind in zip(aside, layout.kinds, strict=True)))
            for layout in (source, target)
        )
        rest = 1 / self.mesh.degree(axis for axis, out in enumerate(aside) if out and isinstance(pairs[axis][0], Cut))
        return changed, self._received.fraction(before, after, shape) * rest


def _is_direct(layout: Layout) -> bool:
    """Whether one exchange converts to and from other such layouts: its cuts are declared and do not overlap. Sums are
    part of the exchange.
    """
    return bool(layout.declared_dims) and not layout.overlaps


def _changed(source: Layout, target: Layout) -> tuple[int, ...]:
    return tuple(axis for axis, (a, b) in enumerate(zip(source.kinds, target.kinds, strict=True)) if a != b)
