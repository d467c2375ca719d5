"""Prices of conversions between all pairs of layouts of a tensor, affine in its bytes.

A price is affine in the tensor's bytes. The cheapest paths between all pairs are gone at once, move by move, so the
table costs a few operations on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby

import numpy as np

from ...graph.collective_steps import LOCAL_STEPS, Step, StepKind
from ...graph.layout import PARTITION, Cut, Layout, Mesh
from ...graph.layout_codes import SHARD, Numbers
from ...graph.layout_conversion import Conversion, convert, cut_extents, divisors, move_table
from ...graph.layout_exchange import Received
from ...graph.layout_moves import EXCHANGE, IS_LOCAL, STEP_KINDS, Moves, StepArrays
from ...graph.lightest_paths import LightestPaths, lightest_paths
from ...index.library import Library
from ...machine.machine import Machine
from ...machine.price import Price, local_fraction, price_exchange, price_steps
from ..cost_network.bucket_elimination import Table
from .window_conversions import Crossings, Windows


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

    def at(self, index: tuple[Numbers, Numbers]) -> PriceTables:
        return PriceTables(*(getattr(self, entry.name)[index] for entry in fields(self)))

    def forward(self, count: float) -> Table:
        return self.forward_latency + self.forward_per_byte * count

    def backward(self, count: float) -> Table:
        return self.backward_latency + self.backward_per_byte * count


class ConversionPrices:
    """Prices of conversions on a mesh of a machine, found per shape (its divisors) when first asked for."""

    def __init__(self, mesh: Mesh, machine: Machine, library: Library) -> None:
        self.mesh = mesh
        self.machine = machine
        self._received = Received(mesh, library)
        self._tariff = _Tariff(mesh, machine)
        self._tables: dict[tuple[int, ...], PriceTables] = {}

    def between(self, layouts: Sequence[Layout], shape: tuple[int, ...]) -> PriceTables:
        """Prices for every ordered pair of layouts of a tensor of that shape."""
        table = move_table(divisors(shape, self.mesh), self.mesh)
        extents = cut_extents(shape, self.mesh)
        numbers = np.array([table.number.get(layout, table.in_order) for layout in layouts], dtype=np.int64)
        if (numbers < table.in_order).all():
            return self._of_extents(extents).at((numbers[:, None], numbers))
        windows = Windows(layouts, table, self.mesh)
        before = np.tile(windows.left, (len(layouts), 1))
        before[:, windows.overlapping] = windows.entered[windows.entry]
        found = self._of_extents(extents).at((windows.left[:, None], before))
        if len(windows.overlapping):
            self._cross(found, windows, shape)
        for i in np.flatnonzero(~windows.plain).tolist():
            for j in range(len(layouts)):
                for source, target in ((i, j), (j, i)):
                    self._put(found, (source, target), layouts[source], layouts[target], shape)
        for entry in fields(found):
            np.fill_diagonal(getattr(found, entry.name), 0.0)
        return found

    def _cross(self, found: PriceTables, windows: Windows, shape: tuple[int, ...]) -> None:
        """Adds what it costs to enter windows and to leave them."""
        entering = self._tariff.crossings(windows.entering(self._received, shape))
        leaving = self._tariff.crossings(windows.leaving(self._received, shape))
        for entry, enter, leave in zip(fields(found), entering, leaving, strict=True):
            table = getattr(found, entry.name)
            table[:, windows.overlapping] += enter.reshape(windows.entered.shape)[windows.entry]
            table[windows.overlapping] += leave[:, None]

    def _put(
        self, tables: PriceTables, at: tuple[int, int], source: Layout, target: Layout, shape: tuple[int, ...]
    ) -> None:
        there, back, steps = self.price(source, target, shape)
        values = there.latency, there.per_byte, back.latency, back.per_byte, steps
        for entry, value in zip(fields(tables), values, strict=True):
            getattr(tables, entry.name)[at] = value

    def price(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> tuple[Price, Price, float]:
        """Of one conversion there and back, in bytes of the whole tensor, and its steps both ways."""
        found = convert(source, target, self.mesh, shape)
        forward, there = self._steps(found.forward, source, shape)
        backward, back = self._steps(found.backward, target, shape)
        return forward, backward, there + back

    def _steps(self, steps: Sequence[Step], start: Layout, shape: tuple[int, ...]) -> tuple[Price, float]:
        """The price of steps and how many they are.

        How much an exchange moves between other slices than blocks is known at this very shape, by its transfers.
        """
        held = local_fraction(start, self.mesh)
        price, count = Price(), 0.0
        for declared, group in groupby(steps, _declared):
            if not declared:
                between = tuple(group)
                price += price_steps(between, self.mesh, self.machine, held)
                count += count_steps(Conversion(between, ()))
                continue
            for step in group:
                assert step.source is not None and step.target is not None
                received = self._received.fraction(step.source, step.target, shape)
                before, held = local_fraction(step.source, self.mesh), local_fraction(step.target, self.mesh)
                price += price_exchange(step.axes, received, self.mesh, self.machine, before + held)
                count += 1.0 if received else 0.1
        return price, count

    def _of_extents(self, extents: tuple[int, ...]) -> PriceTables:
        """All pairs of layouts in mesh order of a tensor of such `cut_extents`.

        A pair that does not cut the last dimension is converted as of those before it.
        """
        if extents not in self._tables:
            paths = lightest_paths(extents, self.mesh)
            size = paths.in_order
            kind = paths.layouts.kind[:size]
            lower = np.flatnonzero((kind < SHARD + len(extents) - 1).all(axis=1)) if extents else np.arange(0)
            own = np.ones((size, size), dtype=bool)
            own[np.ix_(lower, lower)] = False
            found = _Walk(paths, self._tariff).prices(*np.nonzero(own))
            every = PriceTables(*np.zeros((len(fields(PriceTables)), size, size)))
            for entry in fields(every):
                getattr(every, entry.name)[own] = getattr(found, entry.name)
                if extents:
                    before = self._of_extents(extents[:-1])
                    getattr(every, entry.name)[np.ix_(lower, lower)] = getattr(before, entry.name)
            self._tables[extents] = every
        return self._tables[extents]


def _declared(step: Step) -> bool:
    """Whether a step is an exchange with slices of a user's own op."""
    kinds = [kind for layout in (step.source, step.target) if layout is not None for kind in layout.kinds]
    return any(isinstance(kind, Cut) and kind.by != PARTITION for kind in kinds)


def count_steps(conversion: Conversion) -> float:
    """Steps both ways, local ones counting a tenth."""
    return sum(0.1 if step.kind in LOCAL_STEPS else 1.0 for step in (*conversion.forward, *conversion.backward))


class _Tariff:
    """Prices of steps by kind and group of mesh axes, as a bit set, per fraction of the tensor that is held before."""

    def __init__(self, mesh: Mesh, machine: Machine) -> None:
        self.mesh = mesh
        self.machine = machine
        groups = 1 << len(mesh.axes)
        self.latency, self.per_byte = np.zeros((2, len(STEP_KINDS), groups))
        for number, kind in enumerate(STEP_KINDS):
            for group in range(1, groups if kind is not StepKind.EXCHANGE else 0):
                price = price_steps((Step(kind, _axes(group)),), mesh, machine, 1.0)
                self.latency[number, group], self.per_byte[number, group] = price.latency, price.per_byte

    def exchange(self, group: Numbers, received: Table, copied: Table) -> Table:
        """Latency and price per byte of exchanges. Shape [2, exchanges]."""
        each, which = np.unique(np.stack([group, received, copied]), axis=1, return_inverse=True)
        prices = [
            price_exchange(_axes(int(group)), received, self.mesh, self.machine, copied)
            for group, received, copied in each.T.tolist()
        ]
        found = np.array([(price.latency, price.per_byte) for price in prices]).reshape(-1, 2)
        return np.asarray(found[which.reshape(-1)].T)

    def crossings(self, crossings: Crossings) -> Table:
        """The fields of `PriceTables`, each of shape [crossings]."""
        there, back = (self.exchange(crossings.group, part, crossings.copied) for part in crossings.received)
        steps = np.where(crossings.received > 0, 1.0, 0.1).sum(axis=0)
        return np.stack([*there, *back, steps])


def _axes(group: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(group.bit_length()) if group >> axis & 1)


class _Walk:
    """Goes all lightest paths at once, move by move, and adds up the prices of their steps.

    Neighbouring steps that convert merges into one over the joint group are priced as one, as it does.
    """

    def __init__(self, paths: LightestPaths, tariff: _Tariff) -> None:
        self.paths = paths
        moves = paths.moves
        held = paths.layouts.local_fractions(tariff.mesh)
        before, after = held[moves.source], held[moves.target]
        self.there = _Steps(moves, moves.forward, before, after, tariff)
        self.back = _Steps(moves, moves.backward, after, before, tariff)

    def prices(self, sources: Numbers, targets: Numbers) -> PriceTables:
        """Of the paths from each source to the target beside it."""
        here = sources.copy()
        there, back = _Sum(self.there, len(here)), _Sum(self.back, len(here), reverse=True)
        first, ends = self.paths.first.reshape(-1), self.paths.moves.target
        going = np.flatnonzero(here != targets)
        while len(going):
            move = first.take(here.take(going) * len(self.paths.first) + targets.take(going))
            there.add(going, move)
            back.add(going, move)
            end = ends.take(move)
            here[going] = end
            going = going.compress(end != targets.take(going))
        total, returned = there.closed(), back.closed()
        return PriceTables(total[0], total[1], returned[0], returned[1], total[2] + returned[2])


_MERGED = np.array([kind not in (StepKind.EXCHANGE, StepKind.ALL_TO_ALL, StepKind.MASK) for kind in STEP_KINDS])


class _Steps:
    """The steps of all moves in one direction, with the fractions held before, and what they cost: exchanges have a
    price of their own. Steps of one `sort` merge; those that merge with none have -1, and so has the move -1.

    `alone` has, by move, latency and price per byte of its step and what it counts. Shape [3, moves].
    """

    def __init__(self, moves: Moves, steps: StepArrays, held: Table, kept: Table, tariff: _Tariff) -> None:
        self.kind, self.group, self.held = steps.kind, moves.group, held
        self.real = steps.kind >= 0
        self.sort = np.append(np.where(_MERGED[steps.kind], steps.kind + len(STEP_KINDS) * steps.dim, -1), -1)
        self.latency, self.per_byte = tariff.latency, tariff.per_byte
        own = np.zeros((2, len(self.kind)))
        rows = np.flatnonzero(self.kind == EXCHANGE)
        own[:, rows] = tariff.exchange(self.group[rows], steps.received[rows], held[rows] + kept[rows])
        latency, per_byte = self.price(self.kind, self.group, held)
        alone = latency + own[0], per_byte + own[1], np.where(IS_LOCAL[self.kind], 0.1, 1.0)
        self.alone = np.hstack([alone, np.zeros((3, 1))])

    def price(self, kind: Numbers, group: Numbers, held: Table) -> tuple[Table, Table]:
        """Latency and price per byte of steps that are no exchanges."""
        return self.latency[kind, group], self.per_byte[kind, group] * held


class _Sum:
    """Prices of paths so far. The last step is open: the next may merge with it. In `reverse` a later one is done
    first, so the fraction that a merged step starts from is the later one's.

    `move` is the one that began the open step, `last` the last that was merged with it, `group` that of all of these.
    """

    def __init__(self, steps: _Steps, paths: int, reverse: bool = False) -> None:
        self.source = steps
        self.reverse = reverse
        self.sums = np.zeros((3, paths))
        self.move, self.last = np.full((2, paths), -1)
        self.group = np.zeros(paths, dtype=np.int64)

    def add(self, paths: Numbers, moves: Numbers) -> None:
        """The next move of each of these paths."""
        source = self.source
        real = source.real.take(moves)
        if not real.all():
            paths, moves = paths.compress(real), moves.compress(real)
        sort, begun = source.sort.take(moves), self.move.take(paths)
        joined = (sort >= 0) & (sort == source.sort.take(begun, mode="wrap"))
        if joined.any():
            more, which, first = paths.compress(joined), moves.compress(joined), begun.compress(joined)
            before = np.where(self.last.take(more) == first, source.group.take(first), self.group.take(more))
            self.group[more] = before | source.group.take(which)
            self.last[more] = which
            new = ~joined
            paths, moves, begun = paths.compress(new), moves.compress(new), begun.compress(new)
        self._close(paths, begun)
        self.move[paths] = moves
        self.last[paths] = moves

    def closed(self) -> Table:
        """Latency, price per byte and what the steps count, of every path. Shape [3, paths]."""
        self._close(np.arange(self.sums.shape[1]), self.move)
        return self.sums

    def _close(self, paths: Numbers, move: Numbers) -> None:
        """Adds the price of each path's open step."""
        open_ = move >= 0
        if not open_.all():
            paths, move = paths.compress(open_), move.compress(open_)
        if not len(paths):
            return
        last = self.last.take(paths)
        prices = self.source.alone.take(move, axis=1)
        merged = np.flatnonzero(last != move)
        begin = (last if self.reverse else move).take(merged)
        group = self.group.take(paths.take(merged))
        prices[:2, merged] = self.source.price(self.source.kind.take(begin), group, self.source.held.take(begin))
        for total, price in zip(self.sums, prices, strict=True):
            total[paths] = total.take(paths) + price
