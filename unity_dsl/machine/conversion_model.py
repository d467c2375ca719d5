"""Cheapest conversions between layouts on a mesh of a machine: shortest paths of single steps, a (min, +) closure.

The search, the plan cost and the code generator query one object, so every priced conversion is the emitted one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from ..graph.collective_steps import LOCAL_STEPS, SUMS, Step, StepKind
from ..graph.layout import Layout, Mesh
from ..graph.layout_conversion import Conversion, beside, divisors
from ..graph.single_steps import step_layouts
from ..index.library import Library
from .cheapest_paths import Paths
from .collective_price import fastest_way, local_fraction, price_bucket, price_copies, price_step
from .declared_exchanges import Direct, Ends, Exchanges, Pair
from .machine import Machine
from .placed_layouts import PlacedLayouts, placed_layouts, way_between
from .price import Places, Price, Table
from .step_prices import TIE, StepPrices, Tariff, bucket_of

__all__ = ["TIE", "ConversionModel", "Located"]


@dataclass(frozen=True)
class _Network:
    """The layouts of all tensors with the same divisors: `number` is a layout's index in the tables of `prices`. `dims`
    are the dimensions that can be sharded.
    """

    dims: tuple[int, ...]
    number: dict[Layout, int]
    prices: StepPrices


@dataclass(frozen=True)
class _End:
    """An end of a path through the network: the layout with this number, and for a layout outside the network the
    exchange `pair` with it and its seconds.
    """

    number: int
    seconds: float = 0.0
    pair: Pair | None = None


@dataclass(frozen=True, eq=False)
class Located:
    """The positions in the network of some layouts of one tensor shape. `numbers` are their indices there, 0 for
    `others`: the places of the layouts outside the network. `leaving` and `entering` are the exchanges by which paths
    from and to each of the others pass the network's border, `direct` the exchanges between two of them.

    `equal` are the places of pairs of equal layouts in a flat table. `in_order` says that all numbers belong to layouts
    in mesh order. If some layouts are on one coordinate, `placed` is set and the other fields describe `placed.around`.
    """

    shape: tuple[int, ...]
    numbers: Places
    equal: Places
    others: Places
    leaving: Ends
    entering: Ends
    direct: Direct
    in_order: bool
    placed: PlacedLayouts | None = None


class ConversionModel:
    """Conversions of any tensor on a mesh of a machine, computed on first request.

    Prices are closed: a conversion costs at most what any path of conversions costs (all pairs, Floyd and Warshall).

    Weight gradients are summed in buckets; their total is `gradient_bytes` times the exposure's `summed`. A last step
    that sums n bytes on a device costs n / B of the sum of a bucket of B bytes, plus the copy into the bucket. It costs
    what the unbucketed sum does if that is less, so that no detour over a copy is cheaper. The smaller last bucket of a
    group is not modelled. Only the fraction `exposure.sums` of bucketed sums counts. An all-gather of a weight may be
    prefetched if it is the first step: then the fraction `begun` of its seconds counts, which is 1 without prefetching.
    """

    def __init__(self, mesh: Mesh, machine: Machine, library: Library, gradient_bytes: float = inf) -> None:
        self.gradient_bytes = gradient_bytes * machine.exposure.summed
        self.mesh = mesh
        self.machine = machine
        self.library = library
        self._exchanges = Exchanges(mesh, machine, library)
        self._tariff = Tariff(mesh, machine)
        self._networks: dict[tuple[int, ...], _Network] = {}
        self._closed: dict[tuple[int, float, tuple[int, ...]], Paths] = {}
        self._located: dict[tuple[Hashable, ...], Located] = {}
        self._chosen: dict[tuple[Layout, Layout, tuple[int, ...], float, bool, float], tuple[Step, ...]] = {}

    # ------------------------------------------------------------------------------------------------- asked for

    def located(self, layouts: Sequence[Layout], shape: tuple[int, ...]) -> Located:
        """The positions of layouts of a tensor of that shape in the network. Shapes that conversions between these
        layouts do not distinguish share one object.
        """
        layouts = tuple(layout.without_copies for layout in layouts)
        extents = divisors(shape, self.mesh)
        dims = _declared_dims(layouts)
        key = extents, tuple(shape[dim] for dim in dims), layouts
        if key not in self._located:
            placed = placed_layouts(layouts, self.mesh, self.machine)
            found = self._locate(layouts if placed is None else placed.around, shape)
            self._located[key] = replace(found, placed=placed)
        return self._located[key]

    def _locate(self, layouts: Sequence[Layout], shape: tuple[int, ...]) -> Located:
        network = self._network(shape)
        numbers = np.array([network.number.get(layout, -1) for layout in layouts], dtype=np.intp)
        others = np.flatnonzero(numbers < 0)
        numbers[others] = 0
        declared = [layouts[place] for place in others.tolist()]
        leaving, entering = (
            self._exchanges.ends([self._beside(layout, network, way) for layout in declared], shape)
            for way in (False, True)
        )
        first = {layout: number for number, layout in enumerate(layouts)}
        same = np.array([first[layout] for layout in layouts])
        most = max(table.max(initial=0) for table in (numbers, leaving.number, entering.number))
        return Located(
            shape,
            numbers,
            np.flatnonzero(same[:, None] == same),
            others,
            leaving,
            entering,
            self._exchanges.direct(declared, others.tolist(), shape),
            bool(most < network.prices.ordered),
        )

    def seconds(self, located: Located, count: float, *, in_buckets: bool = False, begun: float = 1.0) -> Table:
        """Seconds one way between every ordered pair of layouts of a tensor of `count` bytes, `TIE`s included. Either
        sums are `in_buckets`, or the fraction `begun` of a first all-gather counts.
        """
        if located.placed is not None:
            return located.placed.seconds(count, partial(self._seconds, located, count, in_buckets, begun))
        return self._seconds(located, count, in_buckets, begun, ())

    def _seconds(self, located: Located, count: float, in_buckets: bool, begun: float, kept: tuple[int, ...]) -> Table:
        """`seconds` for layouts on all coordinates, by paths that keep the tensor Invariant along the `kept` axes."""
        paths, numbers, others = self._paths(located.shape, count, kept), located.numbers, located.others
        cheapest = paths.cheapest_in_order if located.in_order else paths.cheapest
        ending = cheapest
        if in_buckets:
            ending = paths.ending_in_order if located.in_order else paths.ending
        elif begun < 1 and not kept:
            ending = paths.beginning_in_order(begun) if located.in_order else paths.beginning(begun)
        found = ending.take(numbers, axis=0)
        if not others.size:
            found = found.take(numbers, axis=1)
        else:
            leaving, between = located.leaving, (cheapest if in_buckets else ending).take(numbers, axis=0)
            leaves = leaving.seconds(count)[:, :, None]
            found[others] = (leaves + (ending if in_buckets else cheapest)[leaving.number]).min(axis=1)
            between[others] = (leaves + cheapest[leaving.number]).min(axis=1)
            found = found.take(numbers, axis=1)
            entering, direct = located.entering, located.direct
            found[:, others] = (between[:, entering.number] + entering.seconds(count)).min(axis=2)
            pairs = direct.rows, direct.columns
            found[pairs] = np.minimum(found[pairs], direct.seconds(count))
        found.ravel()[located.equal] = 0.0
        return found

    def conversion(
        self,
        source: Layout,
        target: Layout,
        shape: tuple[int, ...],
        count: float,
        back: float | None = None,
        *,
        in_buckets: bool = False,
        ahead: bool = False,
    ) -> Conversion:
        """The cheapest steps from source to target, and back from the target's transpose to the source's. The tensor
        has `count` bytes. Its gradient has `back` bytes, by default as many, and its sums may be `in_buckets`. If the
        gather is prefetched (`ahead`), only the exposed fraction of a first all-gather counts.
        """
        back = count if back is None else back
        begun = self.machine.exposure.gathers if ahead else 1.0
        forward = self.steps(source, target, shape, count, begun=begun)
        backward = self.steps(target.transpose, source.transpose, shape, back, in_buckets=in_buckets)
        return Conversion(forward, backward)

    def steps(
        self,
        source: Layout,
        target: Layout,
        shape: tuple[int, ...],
        count: float,
        *,
        in_buckets: bool = False,
        begun: float = 1.0,
    ) -> tuple[Step, ...]:
        """The cheapest steps one way; arguments as in `seconds`."""
        source, target = source.without_copies, target.without_copies
        if source == target:
            return ()
        key = source, target, shape, count, in_buckets, begun
        if key not in self._chosen:
            way = way_between(source, target, self.mesh)
            ahead = 1.0 if way.kept else begun
            found = self._cheapest_steps(way.source, way.target, shape, count, in_buckets, ahead, way.kept)
            self._chosen[key] = (*way.leaving, *found)
        return self._chosen[key]

    def _cheapest_steps(
        self,
        source: Layout,
        target: Layout,
        shape: tuple[int, ...],
        count: float,
        in_buckets: bool,
        begun: float,
        kept: tuple[int, ...],
    ) -> tuple[Step, ...]:
        if source == target:
            return ()
        paths = self._paths(shape, count, kept)
        pairs = [
            (a, b)
            for a in self._ends_of(source, False, shape, count)
            for b in self._ends_of(target, True, shape, count)
        ]
        ended = [paths.ending if in_buckets and b.pair is None else paths.cheapest for _, b in pairs]
        between = [table[a.number, b.number] for (a, b), table in zip(pairs, ended, strict=True)]
        gathered = [paths.gathering(a.number, b.number, 1.0 if a.pair else begun) for a, b in pairs]
        prices = [
            a.seconds + min(alone, first) + b.seconds
            for (a, b), alone, (first, _) in zip(pairs, between, gathered, strict=True)
        ]
        best = int(np.argmin(prices))
        direct = self._exchanges.direct([source, target], [0, 1], shape)
        if direct.rows.size and direct.seconds(count)[0] <= prices[best]:
            return (self._exchanges.step(source, target),)
        leave, enter = pairs[best]
        start, path = leave.number, list[Step]()
        if gathered[best][0] < between[best]:
            start, path = gathered[best][1], [self._single(start, gathered[best][1], shape, count)]
        path += self._path(start, enter.number, shape, count, in_buckets and enter.pair is None, kept)
        left, entered = ([] if end.pair is None else [self._exchanges.step(*end.pair)] for end in (leave, enter))
        return (*left, *path, *entered)

    def seconds_of(
        self,
        steps: Sequence[Step],
        start: Layout,
        shape: tuple[int, ...],
        count: float,
        *,
        in_buckets: bool = False,
        begun: float = 1.0,
    ) -> float:
        """Seconds of steps from layout `start` of a tensor of `count` bytes, without `TIE`s. A last step that is a sum
        is priced `in_buckets` if that is not more expensive. If the first step is an all-gather, the fraction `begun`
        of it counts.
        """
        held, seconds = local_fraction(start, self.mesh), 0.0
        for number, (step, (price, left)) in enumerate(zip(steps, self.prices(steps, start, shape), strict=True), 1):
            around = price_copies(step, self.machine, held, left)
            alone = (price + around).seconds(count)
            if in_buckets and number == len(steps) and step.kind in SUMS:
                bucket = bucket_of(count, held, self.gradient_bytes)
                around += price_bucket(self.machine, held)
                exposed = self.machine.exposure.sums * count / bucket
                alone = min(alone, exposed * price.seconds(bucket) + around.seconds(count))
            seconds += begun * alone if number == 1 and step.kind is StepKind.ALL_GATHER else alone
            held = left
        return seconds

    def prices(self, steps: Iterable[Step], start: Layout, shape: tuple[int, ...]) -> Iterator[tuple[Price, float]]:
        """The price of each step as a function of the bytes of the whole tensor, without the copies around the step,
        and the fraction of the tensor that a device holds after it.
        """
        held = local_fraction(start, self.mesh)
        for step in steps:
            if step.source is not None and step.target is not None and _declared_dims((step.source, step.target)):
                held = local_fraction(step.target, self.mesh)
                yield self._exchanges.price(step.source, step.target, shape), held
            else:
                price, held = price_step(step, self.mesh, self.machine, held)
                yield price, held

    # --------------------------------------------------------------------------------------------- between blocks

    def stays(self, step: Step, shape: tuple[int, ...]) -> bool:
        """Whether a step receives nothing from other devices."""
        if step.kind is not StepKind.EXCHANGE or step.source is None or step.target is None:
            return step.kind in LOCAL_STEPS
        return self._exchanges.received(step.source, step.target, shape) == 0

    # ------------------------------------------------------------------------------------------------ the network

    def _network(self, shape: tuple[int, ...]) -> _Network:
        extents = divisors(shape, self.mesh)
        if extents not in self._networks:
            dims = tuple(dim for dim, extent in enumerate(extents) if extent > 1)
            prices = self._tariff.of(tuple(extents[dim] for dim in dims), bool(dims) and dims[0] == 0)
            every = step_layouts(dims, len(self.mesh.axes))
            number = {every[row]: number for number, row in enumerate(prices.steps.rows.tolist())}
            self._networks[extents] = _Network(dims, number, prices)
        return self._networks[extents]

    def _paths(self, shape: tuple[int, ...], count: float, kept: tuple[int, ...] = ()) -> Paths:
        prices = self._network(shape).prices
        key = id(prices), count, kept
        if key not in self._closed:
            self._closed[key] = Paths(prices, count, self.gradient_bytes, self.machine.exposure.sums, kept)
        return self._closed[key]

    def _path(
        self, start: int, end: int, shape: tuple[int, ...], count: float, in_buckets: bool, kept: tuple[int, ...]
    ) -> list[Step]:
        """The single steps of the cheapest path between two layouts of the network; the first of equally cheap ones."""
        paths = self._paths(shape, count, kept)
        if in_buckets and paths.ending[start, end] < paths.cheapest[start, end]:
            before = int(np.argmin(paths.cheapest[start] + paths.last[:, end]))
            held = float(self._network(shape).prices.steps.local[before])
            sent = bucket_of(count, held, self.gradient_bytes)
            return [*self._path(start, before, shape, count, False, kept), self._single(before, end, shape, sent)]
        found = []
        while start != end:
            onward = paths.single[start] + paths.cheapest[:, end]
            onward[start] = np.inf
            after = int(np.argmin(onward))
            found.append(self._single(start, after, shape, count))
            start = after
        return found

    def _single(self, start: int, end: int, shape: tuple[int, ...], count: float) -> Step:
        """The single step by its fastest implementation for a tensor of `count` bytes, or several sent at once."""
        network = self._network(shape)
        steps = network.prices.steps
        step = steps.step(start, end, network.dims)
        assert step is not None, "a path has steps"
        return fastest_way(step, self.mesh, self.machine, float(steps.local[start]) * count)

    def _ends_of(self, layout: Layout, entering: bool, shape: tuple[int, ...], count: float) -> tuple[_End, ...]:
        """The ends of paths through the network for a layout: where they leave it to enter the layout (`entering`), or
        where they begin if they come from the layout. The tensor has `count` bytes.
        """
        network = self._network(shape)
        if layout in network.number:
            return (_End(network.number[layout]),)
        every = self._beside(layout, network, entering)
        seconds = self._exchanges.ends([every], shape).seconds(count)[0].tolist()
        return tuple(_End(number, price, pair) for (number, pair), price in zip(every, seconds, strict=True))

    def _beside(self, layout: Layout, network: _Network, entering: bool) -> list[tuple[int, Pair]]:
        """The network's layouts through which a layout with declared cuts is entered or left, and the exchanges with
        them.
        """
        numbers = ((network.number.get(block), block) for block in beside(layout, entering))
        return [
            (number, (block, layout) if entering else (layout, block))
            for number, block in numbers
            if number is not None
        ]


def _declared_dims(layouts: Sequence[Layout]) -> tuple[int, ...]:
    return tuple(sorted({dim for layout in layouts for dim in layout.declared_dims}))
