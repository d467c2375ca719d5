"""Prices, as arrays, of the single steps between the layouts for tensors with the same divisors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from ..graph.collective_steps import LOCAL_STEPS, SUMS, Step, StepKind
from ..graph.layout import Mesh
from ..graph.layout_codes import SHARD, Numbers
from ..graph.layout_conversion import BUCKET_MIB
from ..graph.single_steps import STEP_KINDS, UNKNOWN, SingleSteps, single_steps
from .collective_price import exchange_copies, fastest_price, local_price
from .group_price import partner_seconds, permutation_price
from .machine import Machine
from .price import Places, Price, PriceTable, Table

TIE = 1e-12
"""Seconds added for each step, to prefer fewer steps at equal prices; smaller than any meaningful difference."""
_LOCAL = 0.1
"""Fraction of `TIE` that a local step adds."""
_EXCHANGE, _PERMUTE = STEP_KINDS.index(StepKind.EXCHANGE), STEP_KINDS.index(StepKind.PERMUTE)
_ALL_GATHER = STEP_KINDS.index(StepKind.ALL_GATHER)
_SUMMED = np.array([kind in SUMS for kind in STEP_KINDS])
_PACKED = np.array([kind in (StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL) for kind in STEP_KINDS])
"""By kind, whether blocks are packed before sending; blocks of the first dimension are contiguous already."""
_JOINED = np.array([kind in (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL) for kind in STEP_KINDS])
"""By kind, whether received blocks are copied to their places."""


@dataclass(frozen=True)
class StepPrices:
    """Prices of single steps: of their communication, as a function of bytes, and of the copies around it.

    Steps are at `places` of a flat table of pairs of layouts. Many steps have the same communication: step i has number
    j = `distinct[i]`, with the price `number[j]` of `sending` for the fraction `scale[j]` of the tensor. `around` are
    latency and price per byte of copies, `TIE`s included, shape [2, steps]. `sums` are the steps that are sums.
    `copies` are latency and price per byte of the copies around sums, and of the copy into a bucket, shape [2, 2,
    sums]. The first `ordered` layouts shard every dimension by mesh axes in their order.
    """

    steps: SingleSteps
    sending: PriceTable
    number: Places
    scale: Table
    distinct: Places
    places: Places
    around: Table
    sums: Places
    copies: Table
    ordered: int

    def seconds(self, count: float) -> Table:
        """Seconds of all single steps of a tensor of `count` bytes. Shape [layouts, layouts]."""
        found = self._without_steps.copy()
        sent = self.sending.seconds(self.number, self.scale * count)
        found.ravel()[self.places] = sent.take(self.distinct) + self.around[0] + self.around[1] * count
        return found

    def sums_in_buckets(self, count: float, total: float, exposed: float) -> Table:
        """Seconds of sums in buckets; infinite for other steps. The tensor is part of `total` bytes of gradients. Its
        share of a bucket's sum counts by the fraction `exposed`; the copies around it count in full.
        """
        buckets = np.array([bucket_of(count, held, total) for held in self.steps.local.tolist()])
        (around, around_rate), (bucket, bucket_rate) = self.copies
        places, sent = self.places[self.sums], self.distinct[self.sums]
        of_bucket = buckets[places // len(buckets)]
        summed = self.sending.seconds(self.number[sent], self.scale[sent] * of_bucket) + TIE
        copied = around + bucket + (around_rate + bucket_rate) * count
        found = np.full(self.steps.kind.shape, np.inf)
        found.ravel()[places] = exposed * count / of_bucket * summed + copied
        return found

    @cached_property
    def _without_steps(self) -> Table:
        """Zero from a layout to itself, infinite elsewhere. Shape [layouts, layouts]."""
        return np.where(self.steps.kind == UNKNOWN, np.inf, 0.0)

    @cached_property
    def gathers(self) -> npt.NDArray[np.bool_]:
        """The single steps that are all-gathers. Shape [layouts, layouts]."""
        return np.asarray(self.steps.kind == _ALL_GATHER)


def bucket_of(count: float, held: float, total: float) -> float:
    """Bytes of the whole tensors in one bucket, for a tensor of `count` bytes out of `total`. A device holds the
    fraction `held` of each.
    """
    return max(count, min(BUCKET_MIB * 2**20 / held, total))


class Tariff:
    """Prices of single steps on a mesh of a machine, by kind and group of mesh axes."""

    def __init__(self, mesh: Mesh, machine: Machine) -> None:
        self.mesh = mesh
        self.machine = machine
        self._found: dict[tuple[tuple[int, ...], bool], StepPrices] = {}

    def of(self, extents: tuple[int, ...], first: bool) -> StepPrices:
        """Step prices of a tensor whose shardable dimensions have these `extents`; `first` says whether its first
        dimension is among them.
        """
        key = extents, first
        if key not in self._found:
            self._found[key] = self._prices(single_steps(extents, self.mesh), first)
        return self._found[key]

    def _prices(self, steps: SingleSteps, first: bool) -> StepPrices:
        size, groups = len(steps.local), 1 << len(self.mesh.axes)
        places = np.flatnonzero(steps.kind >= 0)
        rows, columns = np.divmod(places, size)
        kind, group = steps.kind.take(places), steps.group.take(places)
        before, after = steps.local.take(rows), steps.local.take(columns)
        received = steps.received.take(places)
        exchanges = np.flatnonzero(kind == _EXCHANGE)
        scale = np.where((kind == _PERMUTE) | (kind == _EXCHANGE), received, before)
        code = kind * groups + group
        code[exchanges[received[exchanges] == 0]] = 0  # the group of no axes sends nothing
        scales, of_scale = np.unique(scale, return_inverse=True)
        sent, distinct = np.unique(code * len(scales) + of_scale, return_inverse=True)
        number, scaled = np.divmod(sent, max(len(scales), 1))
        copied = self._copies(steps, first, kind, group, (rows, columns))
        moved = (
            received[exchanges],
            before[exchanges],
            after[exchanges],
            partners_of(self.mesh, self.machine).take(group[exchanges]),
        )
        copied[:, exchanges] = exchange_copies(self.machine, *moved)
        around = copied.copy()
        around[0] += np.array([TIE * (_LOCAL if kind in LOCAL_STEPS else 1.0) for kind in STEP_KINDS]).take(kind)
        (copy,) = local_price(self.machine, 2).algorithms
        summed = np.flatnonzero(_SUMMED.take(kind))
        bucket = np.stack([np.full(len(summed), copy.latency), copy.per_byte * before[summed]])
        copies = np.stack([copied[:, summed], bucket])
        ordered = int(np.count_nonzero(steps.layouts.in_mesh_order))
        return StepPrices(
            steps, self._sending, number, scales.take(scaled), distinct, places, around, summed, copies, ordered
        )

    def _copies(
        self, steps: SingleSteps, first: bool, kind: Numbers, group: Numbers, ends: tuple[Places, Places]
    ) -> Table:
        """Latency and price per byte of the copies around single steps between layouts `ends`. Shape [2, steps]."""
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
    def _sending(self) -> PriceTable:
        """Prices of steps by kind and by group of mesh axes, as a bit set: in bytes held, for permutations and
        exchanges in bytes received.
        """
        groups = groups_of(self.mesh)
        return PriceTable(
            [price for kind in STEP_KINDS for price in (Price(), *(self._of_group(kind, axes) for axes in groups))]
        )

    def _of_group(self, kind: StepKind, axes: tuple[int, ...]) -> Price:
        if kind in (StepKind.PERMUTE, StepKind.EXCHANGE):
            return permutation_price(axes, self.mesh, self.machine)
        return fastest_price(Step(kind, axes), self.mesh, self.machine)


def groups_of(mesh: Mesh) -> list[tuple[int, ...]]:
    """All groups of mesh axes, ordered by their bit sets from 1 on."""
    every = range(len(mesh.axes))
    return [tuple(axis for axis in every if group >> axis & 1) for group in range(1, 1 << len(every))]


@lru_cache(maxsize=256)
def partners_of(mesh: Mesh, machine: Machine) -> Table:
    """Seconds that each further partner adds to an exchange, by group; 0 for group number 0, which has no axes."""
    return np.array([0.0, *(partner_seconds(axes, mesh, machine) for axes in groups_of(mesh))])
