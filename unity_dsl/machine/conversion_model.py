"""Cheapest conversions between layouts on a mesh of a machine: paths of single steps, closed under (min, +).

Search, plan cost and emission ask one object, so that what is priced is what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
import numpy.typing as npt

from ..graph.collective_steps import LOCAL_STEPS, SUMS, Step, StepKind
from ..graph.layout import Cut, Invariant, Layout, Mesh
from ..graph.layout_codes import SHARD, Numbers, dividing
from ..graph.layout_conversion import BUCKET_MIB, Conversion, beside, declared, divisors
from ..graph.layout_exchange import Received
from ..graph.single_steps import STEP_KINDS, UNKNOWN, SingleSteps, single_steps, step_layouts
from ..index.library import Library
from .collective_algorithms import permutation_price
from .collective_price import (
    local_fraction,
    local_price,
    price_copies,
    price_exchange,
    price_exchanges,
    price_step,
    price_steps,
)
from .machine import Machine
from .price import Price

Table = npt.NDArray[np.float64]

TIE = 1e-12
"""Seconds by which a step more makes a conversion worse: decides between equal prices, and is below what they mean."""
_LOCAL = 0.1
"""Of a collective: what a local step counts then."""


_EXCHANGE, _PERMUTE = STEP_KINDS.index(StepKind.EXCHANGE), STEP_KINDS.index(StepKind.PERMUTE)
_FREE = Price()


@dataclass(frozen=True)
class _Network:
    """The layouts that divide tensors with the same divisors, and the prices of single steps between them.

    A price is the least of `latency + per_byte * bytes of the whole tensor` over algorithms, infinite where no single
    step converts. `latency` and `per_byte` are those of the first algorithm, shape [layouts, layouts]; `further` both
    of the others, shape [2, algorithms, pairs], of the pairs that have `several`, as places in a flat table. `dims` are
    the dimensions that can be cut, `rows` the layouts' numbers in `steps`.
    """

    dims: tuple[int, ...]
    number: dict[Layout, int]
    rows: Numbers
    steps: SingleSteps
    latency: Table
    per_byte: Table
    several: Numbers
    further: Table

    def seconds(self, count: float) -> Table:
        """Of single steps of a tensor of so many bytes. Shape [layouts, layouts]."""
        return self._seconds(np.full(len(self.rows), count))

    def sums_in_buckets(self, count: float, total: float, exposed: float) -> Table:
        """Of sums of a tensor that is a part of `total` bytes, its part of a bucket, of which so much is `exposed`;
        infinite for other steps.
        """
        buckets = np.array([bucket_of(count, held, total) for held in self.steps.local[self.rows].tolist()])
        summed = self._seconds(buckets) * (exposed * count / buckets)[:, None]
        return np.where(self._sums, summed, np.inf)

    def _seconds(self, counts: Table) -> Table:
        """Of tensors of so many bytes by the layout that they begin in."""
        found = (self.latency + self.per_byte * counts[:, None]).ravel()
        others = self.further[0] + self.further[1] * counts[self.several // len(counts)]
        found[self.several] = np.minimum(found[self.several], others.min(axis=0, initial=np.inf))
        return found.reshape(self.latency.shape)

    @cached_property
    def _sums(self) -> npt.NDArray[np.bool_]:
        """Which single steps are sums. Shape [layouts, layouts]."""
        return np.isin(self.steps.kind[self.rows[:, None], self.rows], [STEP_KINDS.index(kind) for kind in SUMS])


@dataclass(frozen=True)
class _Paths:
    """Seconds of the single steps between layouts of a tensor, and of the cheapest paths of them; `ending` are those of
    paths of which a `last` sum may be in buckets.
    """

    single: Table
    cheapest: Table
    last: Table
    ending: Table

    def of(self, end: _End) -> Table:
        """The paths that a conversion which enters the network's end takes: a sum is last if nothing is behind it."""
        return self.ending if end.step is None else self.cheapest


@dataclass(frozen=True)
class _End:
    """Where a path through the network begins or ends: at this layout, and the exchange with it, if it is another."""

    number: int
    price: Price = _FREE
    step: Step | None = None

    def seconds(self, count: float) -> float:
        return self.price.seconds(count) + (TIE if self.step is not None else 0.0)


@dataclass(frozen=True)
class Located:
    """Layouts of tensors of a shape in the network: `numbers` there, -1 for others, and a number that equal ones share.

    Of the others, where paths from and to each begin and end, and the single exchange between every two, if it is one.
    """

    shape: tuple[int, ...]
    numbers: Numbers
    same: Numbers
    leaving: tuple[tuple[_End, ...], ...]
    entering: tuple[tuple[_End, ...], ...]
    direct: tuple[tuple[_End | None, ...], ...]


class ConversionModel:
    """Conversions of any tensor on a mesh of a machine, found when first asked for.

    Prices are closed: a conversion costs at most what any path of conversions costs (all pairs, Floyd and Warshall).

    Gradients of weights, `gradient_bytes` in all, are summed in buckets: a sum of `n` bytes on a device costs n / B of
    that of a bucket of B, if it is the last step. This leaves out that the last bucket of each group is smaller. Of the
    machine's `exposure` the sums count here, the gathers of weights where these are told from other tensors.
    """

    def __init__(self, mesh: Mesh, machine: Machine, library: Library, gradient_bytes: float = inf) -> None:
        self.gradient_bytes = gradient_bytes
        self.mesh = mesh
        self.machine = machine
        self.library = library
        self._received = Received(mesh, library)
        self._tariff = _Tariff(mesh, machine)
        self._networks: dict[tuple[int, ...], _Network] = {}
        self._closed: dict[tuple[tuple[int, ...], float, bool], _Paths] = {}
        self._ends: dict[tuple[Layout, bool, tuple[int, ...]], tuple[_End, ...]] = {}
        self._chosen: dict[tuple[Layout, Layout, tuple[int, ...], float, bool], tuple[Step, ...]] = {}

    # ------------------------------------------------------------------------------------------------- asked for

    def located(self, layouts: Sequence[Layout], shape: tuple[int, ...]) -> Located:
        """Where layouts of a tensor of that shape are in the network."""
        network = self._network(shape)
        layouts = [layout.without_copies for layout in layouts]
        numbers = np.array([network.number.get(layout, -1) for layout in layouts], dtype=np.int64)
        others = [layouts[i] for i in np.flatnonzero(numbers < 0)]
        first = {layout: number for number, layout in enumerate(layouts)}
        return Located(
            shape,
            numbers,
            np.array([first[layout] for layout in layouts], dtype=np.int64),
            tuple(self._ends_of(layout, False, shape) for layout in others),
            tuple(self._ends_of(layout, True, shape) for layout in others),
            tuple(tuple(self._directly(a, b, shape) for b in others) for a in others),
        )

    def seconds(self, located: Located, count: float, *, in_buckets: bool = False) -> Table:
        """One way between every ordered pair of layouts of a tensor of so many bytes. `TIE`s are included."""
        paths, numbers = self._paths(located.shape, count, in_buckets), located.numbers
        others = np.flatnonzero(numbers < 0).tolist()
        from_all, between = paths.ending[numbers], paths.cheapest[numbers]
        for i, ends in zip(others, located.leaving, strict=True):
            from_all[i] = np.min([end.seconds(count) + paths.ending[end.number] for end in ends], axis=0)
            between[i] = np.min([end.seconds(count) + paths.cheapest[end.number] for end in ends], axis=0)
        found = from_all[:, numbers]
        for j, ends in zip(others, located.entering, strict=True):
            found[:, j] = np.min([between[:, end.number] + end.seconds(count) for end in ends], axis=0)
        for i, row in zip(others, located.direct, strict=True):
            for j, direct in zip(others, row, strict=True):
                if direct is not None:
                    found[i, j] = min(found[i, j], direct.seconds(count))
        found[located.same[:, None] == located.same] = 0.0
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
    ) -> Conversion:
        """The cheapest steps there, and back from the transpose of the target to that of the source. A tensor has
        `count` bytes and its cotangent, of which sums may be `in_buckets`, as many, or `back`.
        """
        back = count if back is None else back
        forward = self.steps(source, target, shape, count)
        backward = self.steps(target.transpose, source.transpose, shape, back, in_buckets=in_buckets)
        return Conversion(forward, backward)

    def steps(
        self, source: Layout, target: Layout, shape: tuple[int, ...], count: float, *, in_buckets: bool = False
    ) -> tuple[Step, ...]:
        """The cheapest steps one way."""
        source, target = source.without_copies, target.without_copies
        if source == target:
            return ()
        key = source, target, shape, count, in_buckets
        if key not in self._chosen:
            self._chosen[key] = self._cheapest_steps(source, target, shape, count, in_buckets)
        return self._chosen[key]

    def _cheapest_steps(
        self, source: Layout, target: Layout, shape: tuple[int, ...], count: float, in_buckets: bool
    ) -> tuple[Step, ...]:
        paths = self._paths(shape, count, in_buckets)
        pairs = [(a, b) for a in self._ends_of(source, False, shape) for b in self._ends_of(target, True, shape)]
        prices = [a.seconds(count) + paths.of(b)[a.number, b.number] + b.seconds(count) for a, b in pairs]
        best = int(np.argmin(prices))
        direct = self._directly(source, target, shape)
        if direct is not None and direct.step is not None and direct.seconds(count) <= prices[best]:
            return (direct.step,)
        leave, enter = pairs[best]
        ending = in_buckets and enter.step is None
        path = (leave.step, *self._path(leave.number, enter.number, shape, count, ending), enter.step)
        return tuple(step for step in path if step is not None)

    def seconds_of(
        self, steps: Sequence[Step], start: Layout, shape: tuple[int, ...], count: float, *, in_buckets: bool = False
    ) -> float:
        """Of steps that begin in a layout of a tensor of so many bytes, without `TIE`s. The last one, if it is a sum,
        may be `in_buckets`.
        """
        held, seconds = local_fraction(start, self.mesh), 0.0
        for number, (step, (price, left)) in enumerate(zip(steps, self.prices(steps, start, shape), strict=True), 1):
            price += price_copies(step, self.machine, held, left)
            if in_buckets and number == len(steps) and step.kind in SUMS:
                bucket = bucket_of(count, held, self.gradient_bytes)
                seconds += self.machine.exposure.sums * price.seconds(bucket) * count / bucket
            else:
                seconds += price.seconds(count)
            held = left
        return seconds

    def prices(self, steps: Iterable[Step], start: Layout, shape: tuple[int, ...]) -> Iterator[tuple[Price, float]]:
        """The price of each step without the copies around it, in bytes of the whole tensor, with the fraction of the
        tensor that a device holds after it.
        """
        held = local_fraction(start, self.mesh)
        for step in steps:
            if step.source is not None and step.target is not None and _has_declared(step.source, step.target):
                held = local_fraction(step.target, self.mesh)
                yield self._exchange(step.source, step.target, shape)[0], held
            else:
                price, held = price_step(step, self.mesh, self.machine, held)
                yield price, held

    # --------------------------------------------------------------------------------------------- between blocks

    def _network(self, shape: tuple[int, ...]) -> _Network:
        extents = divisors(shape, self.mesh)
        if extents not in self._networks:
            dims = tuple(dim for dim, extent in enumerate(extents) if extent > 1)
            steps = single_steps(len(dims), self.mesh)
            rows = np.flatnonzero(dividing(steps.layouts, [extents[dim] for dim in dims], self.mesh))
            every = step_layouts(dims, len(self.mesh.axes))
            number = {every[row]: number for number, row in enumerate(rows)}
            first = bool(dims) and dims[0] == 0
            latency, per_byte = (table[:, rows[:, None], rows] for table in self._tariff.of(steps, first))
            pairs = np.nonzero((latency[1:] < np.inf).any(axis=0))
            several = np.ravel_multi_index(pairs, latency.shape[1:])
            further = np.stack([table[1:, pairs[0], pairs[1]] for table in (latency, per_byte)])
            self._networks[extents] = _Network(dims, number, rows, steps, latency[0], per_byte[0], several, further)
        return self._networks[extents]

    def _paths(self, shape: tuple[int, ...], count: float, in_buckets: bool) -> _Paths:
        key = divisors(shape, self.mesh), count, in_buckets
        if key not in self._closed:
            network = self._network(shape)
            single = network.seconds(count)
            cheapest = _close(single)
            last = np.full_like(single, np.inf)
            ending = cheapest
            if in_buckets:
                last = network.sums_in_buckets(count, self.gradient_bytes, self.machine.exposure.sums)
                ending = _ended(cheapest, last)
            self._closed[key] = _Paths(single, cheapest, last, ending)
        return self._closed[key]

    def _path(self, start: int, end: int, shape: tuple[int, ...], count: float, in_buckets: bool) -> list[Step]:
        """The single steps of the cheapest path between layouts of the network; of equal ones the first."""
        network, paths = self._network(shape), self._paths(shape, count, in_buckets)
        if paths.ending[start, end] < paths.cheapest[start, end]:
            before = int(np.argmin(paths.cheapest[start] + paths.last[:, end]))
            summed = network.steps.step(int(network.rows[before]), int(network.rows[end]), network.dims)
            assert summed is not None, "a sum is a step"
            return [*self._path(start, before, shape, count, False), summed]
        found = []
        while start != end:
            onward = paths.single[start] + paths.cheapest[:, end]
            onward[start] = np.inf
            after = int(np.argmin(onward))
            step = network.steps.step(int(network.rows[start]), int(network.rows[after]), network.dims)
            assert step is not None, "a path has steps"
            found.append(step)
            start = after
        return found

    # ---------------------------------------------------------------------------------------------- declared cuts

    def _ends_of(self, layout: Layout, entering: bool, shape: tuple[int, ...]) -> tuple[_End, ...]:
        """Where paths to a layout may leave the network, or from a layout enter it."""
        network = self._network(shape)
        if layout in network.number:
            return (_End(network.number[layout]),)
        key = layout, entering, shape
        if key not in self._ends:
            found = []
            for block in beside(layout, entering):
                if block in network.number:
                    pair = (block, layout) if entering else (layout, block)
                    found.append(_End(network.number[block], *self._exchange(*pair, shape)))
            self._ends[key] = tuple(found)
        return self._ends[key]

    def _directly(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> _End | None:
        """One exchange between two layouts with declared cuts that do not overlap; sums are part of it."""
        if source == target or source.overlaps or target.overlaps:
            return None
        if not (_has_declared(source) and _has_declared(target)):
            return None
        return _End(-1, *self._exchange(source, target, shape))

    def stays(self, step: Step, shape: tuple[int, ...]) -> bool:
        """Whether a step takes nothing from other devices."""
        if step.kind is not StepKind.EXCHANGE or step.source is None or step.target is None:
            return step.kind in LOCAL_STEPS
        return self._taken(step.source, step.target, shape)[1] == 0

    def _exchange(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> tuple[Price, Step]:
        changed, received = self._taken(source, target, shape)
        held = [local_fraction(layout, self.mesh) for layout in (source, target)]
        price = price_exchange(changed, received, self.mesh, self.machine, *held)
        return price, Step(StepKind.EXCHANGE, changed, source=source, target=target)

    def _taken(self, source: Layout, target: Layout, shape: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """The mesh axes that change, and the part of the tensor that a device takes from others, by the transfers. Mesh
        axes that do not change and cut other dimensions only leave less of the tensor.
        """
        pairs = list(zip(source.kinds, target.kinds, strict=True))
        changed = tuple(axis for axis, (a, b) in enumerate(pairs) if a != b)
        dims = {kind.dim for axis in changed for kind in pairs[axis] if isinstance(kind, Cut)}
        aside = [a == b and not (isinstance(a, Cut) and a.dim in dims) for a, b in pairs]
        before, after = (
            Layout(tuple(Invariant() if out else kind for out, kind in zip(aside, layout.kinds, strict=True)))
            for layout in (source, target)
        )
        rest = 1 / self.mesh.degree(axis for axis, out in enumerate(aside) if out and isinstance(pairs[axis][0], Cut))
        return changed, self._received.fraction(before, after, shape) * rest


def bucket_of(count: float, held: float, total: float) -> float:
    """Bytes of whole tensors that are summed at once with one of `count` bytes, of `total`, of which a device holds
    the fraction `held`.
    """
    return max(count, min(BUCKET_MIB * 2**20 / held, total))


def _has_declared(*layouts: Layout) -> bool:
    return any(declared(kind) for layout in layouts for kind in layout.kinds)


def _ended(cheapest: Table, last: Table) -> Table:
    """The cheapest paths, of which one of these steps may be the last."""
    found = cheapest.copy()
    for middle in np.flatnonzero((last < np.inf).any(axis=1)):
        np.minimum(found, cheapest[:, middle, None] + last[middle], out=found)
    return found


def _close(single: Table) -> Table:
    """The cheapest paths between all pairs (Floyd, Warshall)."""
    found, through = single.copy(), np.empty_like(single)
    for middle in range(len(found)):
        np.add(found[:, middle, None], found[middle], out=through)
        np.minimum(found, through, out=found)
    return found


class _Tariff:
    """Prices of single steps by kind and group of mesh axes, per fraction of the tensor."""

    def __init__(self, mesh: Mesh, machine: Machine) -> None:
        self.mesh = mesh
        self.machine = machine
        self._found: dict[tuple[int, bool], tuple[Table, Table]] = {}

    def of(self, steps: SingleSteps, first: bool) -> tuple[Table, Table]:
        """Latency, `TIE`s included, and price per byte of every single step by algorithm, infinite where there is none.
        Shape [algorithms, layouts, layouts] each. Whether the `first` dimension of tensors can be cut.
        """
        key = len(steps.layouts), first
        if key not in self._found:
            self._found[key] = self._prices(steps, first)
        return self._found[key]

    def _prices(self, steps: SingleSteps, first: bool) -> tuple[Table, Table]:
        at = np.nonzero(steps.kind >= 0)
        kind, group, before = steps.kind[at], steps.group[at], steps.local[at[0]]
        received = steps.received[at]
        found = self._by_group[:, :, kind, group]
        found[1] *= np.where(kind == _PERMUTE, received, before)
        exchanges = np.flatnonzero(kind == _EXCHANGE)
        for number in np.unique(group[exchanges]).tolist():
            some = exchanges[group[exchanges] == number]
            moved = received[some], before[some], steps.local[at[1][some]]
            found[:, 0, some] = price_exchanges(_axes(number), self.mesh, self.machine, *moved)
        ties = np.array([TIE * (_LOCAL if kind in LOCAL_STEPS else 1.0) for kind in STEP_KINDS])
        latency, per_byte = np.zeros((2, found.shape[1], *steps.kind.shape))
        latency[0, steps.kind == UNKNOWN] = latency[1:] = np.inf
        latency[:, *at], per_byte[:, *at] = found + self._copies(steps, first)
        latency[:, *at] += ties[kind]
        return latency, per_byte

    def _copies(self, steps: SingleSteps, first: bool) -> Table:
        """Latency and price per byte of the copies around every single step. Shape [2, 1, steps]."""
        rows, columns = np.nonzero(steps.kind >= 0)
        kind, group = steps.kind[rows, columns], steps.group[rows, columns]
        before, after = steps.local[rows], steps.local[columns]
        lowest = np.log2(group & -group).astype(np.int64)
        leads, led = (first & (steps.layouts.kind[ends, lowest] == SHARD) for ends in (rows, columns))
        packed = np.isin(kind, [STEP_KINDS.index(of) for of in (StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL)]) & ~led
        joined = np.isin(kind, [STEP_KINDS.index(of) for of in (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL)]) & ~leads
        (copy,) = local_price(self.machine, 2).algorithms
        latency = copy.latency * (packed.astype(float) + joined)
        return np.stack([latency, copy.per_byte * (packed * before + joined * after)])[:, None]

    @cached_property
    def _by_group(self) -> Table:
        """Latency and price per byte held, or received in a permutation, of steps, by algorithm, kind and group of mesh
        axes as a bit set. Shape [2, algorithms, kinds, groups]; infinite where there are fewer algorithms, and for
        exchanges, of which the group is not all that matters.
        """
        groups = [_axes(group) for group in range(1, 1 << len(self.mesh.axes))]
        prices = {
            (number, group): self._of_group(kind, axes).algorithms
            for number, kind in enumerate(STEP_KINDS)
            if kind is not StepKind.EXCHANGE
            for group, axes in enumerate(groups, start=1)
        }
        most = max(map(len, prices.values()), default=1)
        found = np.zeros((2, most, len(STEP_KINDS), len(groups) + 1))
        found[0] = np.inf
        for place, algorithms in prices.items():
            for number, algorithm in enumerate(algorithms):
                found[:, number, *place] = algorithm.latency, algorithm.per_byte
        return found

    def _of_group(self, kind: StepKind, axes: tuple[int, ...]) -> Price:
        if kind is StepKind.PERMUTE:
            return permutation_price(axes, self.mesh, self.machine)
        return price_steps((Step(kind, axes),), self.mesh, self.machine, 1.0)


def _axes(group: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(group.bit_length()) if group >> axis & 1)
