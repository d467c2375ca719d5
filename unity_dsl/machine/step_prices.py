"""Prices of the single steps between the layouts that divide a tensor, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..graph.collective_steps import LOCAL_STEPS, SUMS, Step, StepKind
from ..graph.layout import Mesh
from ..graph.layout_codes import SHARD, Numbers
from ..graph.layout_conversion import BUCKET_MIB
from ..graph.single_steps import STEP_KINDS, UNKNOWN, SingleSteps, single_steps
from .collective_algorithms import permutation_price
from .collective_price import local_price, price_exchanges, price_steps
from .machine import Machine
from .price import Price

Table = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

TIE = 1e-12
"""Seconds by which a step more makes a conversion worse: decides between equal prices, and is below what they mean."""
_LOCAL = 0.1
"""Of a collective: what a local step counts then."""
_EXCHANGE, _PERMUTE = STEP_KINDS.index(StepKind.EXCHANGE), STEP_KINDS.index(StepKind.PERMUTE)
_ALL_GATHER = STEP_KINDS.index(StepKind.ALL_GATHER)
_SUMMED = np.array([kind in SUMS for kind in STEP_KINDS])
_PACKED = np.array([kind in (StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL) for kind in STEP_KINDS])
"""By kind, whether blocks are packed before they are sent: those of the first dimension lie one behind the other."""
_JOINED = np.array([kind in (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL) for kind in STEP_KINDS])
"""Whether what members send is copied to where it belongs."""


@dataclass(frozen=True)
class StepPrices:
    """Prices of single steps: each is the least of `latency + per_byte * bytes of the whole tensor` over algorithms,
    infinite where no single step converts.

    `latency` and `per_byte` are those of the first algorithm, shape [layouts, layouts]; `further` both of the others,
    shape [2, algorithms, pairs], of the pairs that have `several`, as places in a flat table. Of the steps that are
    `sums`, places there too, `copies` are latency and price per byte of the copies around them, and of that into a
    bucket, shape [2, 2, sums]. The first `ordered` layouts cut every dimension by mesh axes in their
    order.
    """

    steps: SingleSteps
    latency: Table
    per_byte: Table
    several: Places
    further: Table
    sums: Places
    copies: Table
    ordered: int

    def seconds(self, count: float) -> Table:
        """Of single steps of a tensor of so many bytes. Shape [layouts, layouts]."""
        return self._seconds(np.full(len(self.latency), count))

    def sums_in_buckets(self, count: float, total: float, exposed: float) -> Table:
        """Of sums of a tensor that is a part of `total` bytes, its part of a bucket, of which so much is `exposed`, and
        the copies around it; infinite for other steps.
        """
        buckets = np.array([bucket_of(count, held, total) for held in self.steps.local.tolist()])
        (around, around_rate), (bucket, bucket_rate) = self.copies
        of_bucket = buckets[self.sums // len(buckets)]
        summed = self._seconds(buckets).take(self.sums) - around - around_rate * of_bucket
        copied = around + bucket + (around_rate + bucket_rate) * count
        found = np.full(self.latency.shape, np.inf)
        found.ravel()[self.sums] = exposed * count / of_bucket * summed + copied
        return found

    @cached_property
    def gathers(self) -> npt.NDArray[np.bool_]:
        """The single steps that are all-gathers. Shape [layouts, layouts]."""
        return np.asarray(self.steps.kind == _ALL_GATHER)

    def _seconds(self, counts: Table) -> Table:
        """Of tensors of so many bytes by the layout that they begin in."""
        found = (self.latency + self.per_byte * counts[:, None]).ravel()
        others = self.further[0] + self.further[1] * counts[self.several // len(counts)]
        found[self.several] = np.minimum(found[self.several], others.min(axis=0, initial=np.inf))
        return found.reshape(self.latency.shape)


def bucket_of(count: float, held: float, total: float) -> float:
    """Bytes of whole tensors that are summed at once with one of `count` bytes, of `total`, of which a device holds
    the fraction `held`.
    """
    return max(count, min(BUCKET_MIB * 2**20 / held, total))


class Tariff:
    """Prices of single steps on a mesh of a machine, by kind and group of mesh axes."""

    def __init__(self, mesh: Mesh, machine: Machine) -> None:
        self.mesh = mesh
        self.machine = machine
        self._found: dict[tuple[tuple[int, ...], bool], StepPrices] = {}

    def of(self, extents: tuple[int, ...], first: bool) -> StepPrices:
        """Of a tensor of which dimensions of these extents can be cut, and whether its `first` one is among them."""
        key = extents, first
        if key not in self._found:
            self._found[key] = self._prices(single_steps(extents, self.mesh), first)
        return self._found[key]

    def _prices(self, steps: SingleSteps, first: bool) -> StepPrices:
        """`TIE`s are included in latencies."""
        size, groups = len(steps.local), self._by_group.shape[3]
        places = np.flatnonzero(steps.kind >= 0)
        rows, columns = np.divmod(places, size)
        kind, group = steps.kind.take(places), steps.group.take(places)
        before, after = steps.local.take(rows), steps.local.take(columns)
        received = steps.received.take(places)
        code = kind * groups + group
        by_code = self._by_group.reshape(2, -1, len(STEP_KINDS) * groups)
        scale = np.where(kind == _PERMUTE, received, before)
        found = np.stack([by_code[0, 0].take(code), by_code[1, 0].take(code) * scale])
        exchanges = np.flatnonzero(kind == _EXCHANGE)
        for number in np.flatnonzero(np.bincount(group[exchanges])).tolist():
            some = exchanges[group[exchanges] == number]
            moved = received[some], before[some], after[some]
            found[:, some] = price_exchanges(axes_of(number), self.mesh, self.machine, *moved)
        several = np.flatnonzero((by_code[0, 1:] < np.inf).any(axis=0).take(code))
        further = by_code[:, 1:, code[several]]
        further[1] *= scale[several]
        around = self._copies(steps, first, kind, group, (rows, columns))
        tied = np.array([TIE * (_LOCAL if kind in LOCAL_STEPS else 1.0) for kind in STEP_KINDS]).take(kind)
        found += around
        further += around[:, None, several]
        found[0] += tied
        further[0] += tied[several]
        latency, per_byte = np.zeros((2, size, size))
        latency[steps.kind == UNKNOWN] = np.inf
        latency.ravel()[places], per_byte.ravel()[places] = found
        (copy,) = local_price(self.machine, 2).algorithms
        summed = np.flatnonzero(_SUMMED.take(kind))
        bucket = np.stack([np.full(len(summed), copy.latency), copy.per_byte * before[summed]])
        copies = np.stack([around[:, summed], bucket])
        ordered = int(np.count_nonzero(steps.layouts.in_mesh_order))
        return StepPrices(steps, latency, per_byte, places[several], further, places[summed], copies, ordered)

    def _copies(
        self, steps: SingleSteps, first: bool, kind: Numbers, group: Numbers, ends: tuple[Places, Places]
    ) -> Table:
        """Latency and price per byte of the copies around single steps, from layouts to layouts. Shape [2, steps]."""
        found = np.zeros((2, len(kind)))
        some = np.flatnonzero((_PACKED | _JOINED).take(kind))
        lowest = np.log2(group[some] & -group[some]).astype(np.int64)
        leads, led = (first & (steps.layouts.kind[end[some], lowest] == SHARD) for end in ends)
        before, after = (steps.local.take(end[some]) for end in ends)
        packed, joined = _PACKED.take(kind[some]) & ~led, _JOINED.take(kind[some]) & ~leads
        (copy,) = local_price(self.machine, 2).algorithms
        found[0, some] = copy.latency * (packed.astype(float) + joined)
        found[1, some] = copy.per_byte * (packed * before + joined * after)
        return found

    @cached_property
    def _by_group(self) -> Table:
        """Latency and price per byte held, or received in a permutation, of steps, by algorithm, kind and group of mesh
        axes as a bit set. Shape [2, algorithms, kinds, groups]; infinite where there are fewer algorithms, and for
        exchanges, of which the group is not all that matters.
        """
        groups = [axes_of(group) for group in range(1, 1 << len(self.mesh.axes))]
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


def axes_of(group: int) -> tuple[int, ...]:
    """The mesh axes of a bit set."""
    return tuple(axis for axis in range(group.bit_length()) if group >> axis & 1)
