"""What it costs to go from any layout to any other, for all pairs at once.

A price is affine in the tensor's bytes, and depends on the sequence of steps only, so all pairs whose cheapest paths
make the same steps are priced once, by one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ..graph.conversion import LOCAL_STEPS, Conversion, MoveTable, Step, convert, divisors, move_table
from ..graph.layout import Layout, Mesh
from ..machine.machine import Machine
from ..machine.mesh import prime_factors
from ..machine.price import exchanged, held_fraction, price_steps
from .elimination import Table

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PriceTables:
    """By source and target: seconds there, `forward_latency + forward_per_byte * bytes of the whole tensor`, and back.

    `steps` count both ways, a collective as one and a local step as a tenth: what decides between equal prices.
    """

    forward_latency: Table
    forward_per_byte: Table
    backward_latency: Table
    backward_per_byte: Table
    steps: Table

    def at(self, index: tuple[Numbers, Numbers] | tuple[npt.NDArray[np.intp], ...]) -> PriceTables:
        return PriceTables(*(getattr(self, entry.name)[index] for entry in fields(self)))

    def forward(self, count: float) -> Table:
        return self.forward_latency + self.forward_per_byte * count

    def backward(self, count: float) -> Table:
        return self.backward_latency + self.backward_per_byte * count


class ConversionPrices:
    """Prices of conversions on a mesh of a machine, found per shape (its divisors) when first asked for."""

    def __init__(self, mesh: Mesh, machine: Machine) -> None:
        self.mesh = mesh
        self.machine = machine
        self._shapes: dict[tuple[int, ...], PriceTables] = {}

    def between(self, layouts: Sequence[Layout], shape: tuple[int, ...]) -> PriceTables:
        """Prices for every ordered pair of layouts of a tensor of that shape."""
        shape = divisors(shape, self.mesh)
        table = move_table(shape, self.mesh)
        numbers = np.array([table.number.get(layout, -1) for layout in layouts], dtype=np.int64)
        known = (numbers >= 0) & (numbers < table.in_order)
        found = self._of_shape(shape).at(np.ix_(np.where(known, numbers, 0), np.where(known, numbers, 0)))
        for i in np.flatnonzero(~known):
            for j in range(len(layouts)):
                for source, target in ((i, j), (j, i)):
                    self._put(found, (source, target), layouts[source], layouts[target], shape)
        return found

    def _put(
        self, tables: PriceTables, at: tuple[int, int], source: Layout, target: Layout, shape: tuple[int, ...]
    ) -> None:
        for entry, value in zip(fields(tables), self._price(source, target, shape), strict=True):
            getattr(tables, entry.name)[at] = value

    def _price(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> tuple[float, ...]:
        found = convert(source, target, self.mesh, shape)
        forward = price_steps(found.forward, self.mesh, self.machine, held_fraction(source, self.mesh))
        backward = price_steps(found.backward, self.mesh, self.machine, held_fraction(target, self.mesh))
        return forward.latency, forward.per_byte, backward.latency, backward.per_byte, count_steps(found)

    def _of_shape(self, shape: tuple[int, ...]) -> PriceTables:
        """All pairs of layouts in mesh order. A pair that cuts fewer dimensions is converted as of those alone."""
        if shape not in self._shapes:
            table = move_table(shape, self.mesh)
            size = table.in_order
            signatures = _signatures(table, self.mesh)
            lower = [table.number[layout] for layout in self._layouts_below(shape)]
            own = np.ones((size, size), dtype=bool)
            own[np.ix_(lower, lower)] = False
            _, one, which = np.unique(signatures[own], return_index=True, return_inverse=True)
            chosen = np.argwhere(own)[one]
            prices = np.zeros((size, size, len(fields(PriceTables))))
            if len(chosen):
                prices[own] = np.array([self._price(table.layouts[i], table.layouts[j], shape) for i, j in chosen])[which]
            if lower:
                below = self._of_shape(shape[:-1])
                prices[np.ix_(lower, lower)] = np.stack([getattr(below, entry.name) for entry in fields(below)], axis=-1)
            self._shapes[shape] = PriceTables(*np.moveaxis(prices, -1, 0))
        return self._shapes[shape]

    def _layouts_below(self, shape: tuple[int, ...]) -> tuple[Layout, ...]:
        if not shape:
            return ()
        table = move_table(shape[:-1], self.mesh)
        return table.layouts[: table.in_order]


def count_steps(conversion: Conversion) -> float:
    """Steps both ways, local ones counting a tenth."""
    return sum(0.1 if step.kind in LOCAL_STEPS else 1.0 for step in (*conversion.forward, *conversion.backward))


def _signatures(table: MoveTable, mesh: Mesh) -> Numbers:
    """Per pair of layouts in mesh order a number that is equal only for paths with the same steps.

    Which dimensions the steps are on does not matter, only whether neighbouring ones are on the same.
    """
    size = table.in_order
    numbers: dict[object, int] = {}
    classes = _axis_classes(mesh)
    held = [held_fraction(layout, mesh) for layout in table.layouts]
    kinds = [
        (
            held[table.number[move.source]],
            _step_code(move.forward, mesh, classes),
            _step_code(move.backward, mesh, classes),
        )
        for move in table.moves
    ]
    codes = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=np.int64)
    ends = np.array([table.number[move.target] for move in table.moves], dtype=np.int64)
    dims = np.array([(_dim(move.forward), _dim(move.backward)) for move in table.moves], dtype=np.int64)
    here, there = np.divmod(np.arange(size * size), size)
    signature = np.zeros(size * size, dtype=np.int64)
    before = np.full((size * size, 2), -2)
    going = np.flatnonzero(here != there)
    while len(going):
        move = table.first[here[going], there[going]]
        same = dims[move] == before[going]
        step = ((1 + codes[move]) * 2 + same[:, 0]) * 2 + same[:, 1]
        _, signature[going] = np.unique(
            signature[going] * (4 * len(numbers) + 8) + step, return_inverse=True
        )
        signature[going] += 1 + signature.max()
        before[going] = np.where(dims[move] == -1, before[going], dims[move])
        here[going] = ends[move]
        going = going[here[going] != there[going]]
    return signature.reshape(size, size)


def _axis_classes(mesh: Mesh) -> tuple[tuple[int, ...], ...]:
    """Axes of equal prime degree and level are interchangeable; one of composite degree may straddle levels."""
    prime = all(len(prime_factors(axis.degree)) == 1 for axis in mesh.axes)
    return tuple((axis.degree, axis.level) if prime else (i,) for i, axis in enumerate(mesh.axes))


def _step_code(step: Step | None, mesh: Mesh, classes: Sequence[object]) -> object:
    """What the price of a step depends on: axes of one class have equal prices."""
    if step is None:
        return None
    axes = tuple(sorted(classes[axis] for axis in step.axes))
    if step.source is None or step.target is None:
        return step.kind, axes
    received = exchanged(step.source, step.target, mesh)
    return step.kind, axes, received, held_fraction(step.source, mesh), held_fraction(step.target, mesh)


def _dim(step: Step | None) -> int:
    return -1 if step is None else step.dim
