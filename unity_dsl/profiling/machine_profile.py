"""Measures this machine: operators with all ranks busy, memory, the optimizer's step, collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

import numpy as np

from ..emit.rank_pool import RankPool
from ..graph.collective_steps import StepKind
from ..index.cost.lowering_class import LoweringClass
from ..index.library import Library
from ..machine.measured_collectives import MeasuredCollectives
from ..machine.measured_curves import Curve, ProductGrid
from ..machine.measured_operators import CurveKey, Direction, GridKey, MeasuredOperators, WorkCurve
from .measured_tables import Point, operator_curves, product_grid, rising_curve
from .rank_measurements import measure_collectives, measure_rates, measure_samples, measure_update
from .samples import ProductPlan, Sample, streamed_operators, streamed_samples

Tell = Callable[[str, int], None]
"""Callback with the name of a measured part and its number of measurements."""

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Coverage:
    """What is measured: `operators` (None: all of the library) over `amounts` of bytes, `grids` of products,
    `collectives` over bytes, and the optimizer over bytes of `parameters`.

    An operator runs on at most `most_elements`.
    """

    amounts: tuple[int, ...]
    grids: tuple[ProductPlan, ...]
    collectives: tuple[int, ...]
    parameters: tuple[int, ...]
    operators: tuple[str, ...] | None = None
    most_elements: int = 2**25


_WIDE = (8, 32, 128, 512, 2048)
FULL = Coverage(
    amounts=(4 * KIB, 64 * KIB, MIB, 8 * MIB, 64 * MIB),
    grids=(
        ProductPlan(LoweringClass.CONTRACTION, False, (1, *_WIDE), _WIDE, _WIDE),
        ProductPlan(LoweringClass.CONTRACTION, True, (8, 32, 128, 512), (8, 32, 128, 512), (8, 32, 128, 512)),
        ProductPlan(LoweringClass.WINDOW, False, (16, 64, 256), (256, 2048, 16384), (27, 144, 576, 2304)),
        ProductPlan(LoweringClass.WINDOW, True, (1, 4, 16), (256, 4096), (9, 36, 144)),
    ),
    collectives=(KIB, 16 * KIB, 128 * KIB, MIB, 8 * MIB, 32 * MIB),
    parameters=(KIB, 64 * KIB, MIB, 16 * MIB),
)
_SIDES = (128, 512, 2048, 8192)
FULL_GPU = Coverage(
    amounts=(256 * KIB, 4 * MIB, 64 * MIB, 512 * MIB),
    grids=(
        ProductPlan(LoweringClass.CONTRACTION, False, (1, 32, *_SIDES), _SIDES, _SIDES),
        ProductPlan(LoweringClass.CONTRACTION, True, (32, 128, 512, 2048), (32, 128, 512, 2048), (32, 128, 512, 2048)),
        ProductPlan(LoweringClass.WINDOW, False, (64, 256), (16384, 131072), (144, 576, 2304)),
        ProductPlan(LoweringClass.WINDOW, True, (1, 4, 16), (4096, 65536), (9, 36, 144)),
    ),
    collectives=(16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB),
    parameters=(KIB, MIB, 64 * MIB),
    most_elements=2**29,
)
"""The coverage for a GPU, which smaller sizes do not keep busy."""
COARSE = Coverage(
    amounts=(4 * KIB, MIB),
    grids=(
        ProductPlan(LoweringClass.CONTRACTION, False, (8, 256), (8, 256), (8, 256)),
        ProductPlan(LoweringClass.CONTRACTION, True, (8, 64), (8, 64), (8, 64)),
    ),
    collectives=(KIB, MIB),
    parameters=(KIB, MIB),
    operators=("add", "gelu", "dropout", "softmax", "layer_norm", "embedding", "cross_entropy", "slice"),
)
FULL_SECONDS = 45
"""With less time than this the coverage is COARSE."""

LONGEST = 0.25
"""Longest expected seconds of a run: an operator that is expected to take longer is not run on more bytes."""

CHUNK = 12
"""Most samples whose repetitions are interleaved."""

CHUNK_ELEMENTS = 2**23
"""Most elements of the operands of interleaved samples, as several tensors of each size are held."""


@dataclass(frozen=True)
class MachineProfile:
    """Measurements of ranks of a `device`: flops per second by dtype, bytes per second, seconds of a launch.

    Operators are measured in `dtypes`.
    """

    device: str
    ranks: int
    dtypes: tuple[str, ...]
    peak: Mapping[str, float]
    bandwidth: float
    launch: float
    operators: MeasuredOperators
    collectives: MeasuredCollectives


@dataclass
class Profiler:
    """Measures in about `seconds` on ranks of a pool, and calls `tell` after each part."""

    pool: RankPool
    library: Library
    device: str
    ranks: int
    seconds: float
    tell: Tell = field(default=lambda part, count: None)
    coverage: Coverage = field(init=False)
    dtypes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        full = FULL_GPU if self.device == "cuda" else FULL
        self.coverage = full if self.seconds >= FULL_SECONDS else COARSE
        self.dtypes = ("f32", "bf16") if self.device == "cuda" else ("f32",)

    @property
    def count(self) -> int:
        """The largest possible number of measurements."""
        streamed = 2 * len(self.names) * len(self.coverage.amounts)
        products = sum(3 * len(grid.rows) * len(grid.columns) * len(grid.inner) for grid in self.coverage.grids)
        return len(self.dtypes) * (streamed + products) + len(self.coverage.parameters) + self._collectives

    @property
    def names(self) -> Sequence[str]:
        """The operators that are measured over bytes or operations."""
        return self.coverage.operators or tuple(streamed_operators(self.library))

    @property
    def _collectives(self) -> int:
        return 4 * len(self.coverage.collectives) * len(self._degrees)

    @property
    def _degrees(self) -> list[int]:
        return [degree for degree in range(2, self.ranks + 1) if self.ranks % degree == 0]

    @property
    def _share(self) -> float:
        """Seconds allowed for one measurement."""
        return 0.7 * self.seconds / self.count

    def run(self) -> MachineProfile:
        rates = self._on_ranks(measure_rates, self.seconds * 0.02)
        self.tell("rates", 0)
        update = self._update()
        curves: dict[CurveKey, WorkCurve] = {}
        grids: dict[GridKey, ProductGrid] = {}
        for dtype in self.dtypes:
            curves |= operator_curves(self._streamed(dtype), self.coverage.amounts, dtype)
            grids |= self._grids(dtype)
        return MachineProfile(
            self.device,
            self.ranks,
            self.dtypes,
            {dtype: _mean([found[dtype] for found in rates]) for dtype in ("f64", "f32", "bf16", "f16")},
            _mean([found["bandwidth"] for found in rates]),
            _mean([found["launch"] for found in rates]),
            MeasuredOperators(curves, grids, update),
            MeasuredCollectives(self._collective_curves()),
        )

    # ------------------------------------------------------------------------------------------ parts

    def _streamed(self, dtype: str) -> Mapping[tuple[str, Direction], list[Point]]:
        """The measurements of streamed operators by increasing bytes: one that is too slow is not run on more."""
        found: dict[tuple[str, Direction], list[Point]] = {}
        for amount in self.coverage.amounts:
            samples = [
                sample
                for name in self.names
                for sample in streamed_samples(self.library.operators[name], [amount], dtype)
                if sample.elements <= self.coverage.most_elements and _expected(sample, found) <= LONGEST
            ]
            for sample, seconds in self._measured(samples):
                if seconds == inf:  # out of memory
                    continue
                found.setdefault((sample.instance.name, sample.direction), []).append((sample, seconds))
        return found

    def _grids(self, dtype: str) -> dict[GridKey, ProductGrid]:
        grids: dict[GridKey, ProductGrid] = {}
        for plan in self.coverage.grids:
            for direction in (Direction.FORWARD, Direction.LEFT, Direction.RIGHT):
                places, samples = zip(*plan.samples(self.library, dtype, direction), strict=True)
                seconds = np.zeros((len(plan.rows), len(plan.columns), len(plan.inner)))
                for place, (_, found) in zip(places, self._measured(samples), strict=True):
                    seconds[place] = found
                one = grids.get(GridKey(plan.kind, dtype, direction, False))
                launch = float(seconds.min()) if one is None else float(one.seconds.min())
                grids[GridKey(plan.kind, dtype, direction, plan.batched)] = product_grid(plan, seconds, launch)
        return grids

    def _update(self) -> Curve:
        amounts = self.coverage.parameters
        found = self._on_ranks(measure_update, amounts, self._share * len(amounts))
        self.tell("the optimizer", len(amounts))
        return rising_curve(list(zip(amounts, _means(found), strict=True)))

    def _collective_curves(self) -> dict[tuple[StepKind, int], Curve]:
        curves: dict[tuple[StepKind, int], Curve] = {}
        amounts = self.coverage.collectives
        for degree in self._degrees:
            allowance = 0.2 * self.seconds / len(self._degrees)
            found = self._on_ranks(measure_collectives, degree, amounts, allowance)
            for kind in found[0]:
                seconds = _means([rank[kind] for rank in found])
                curves[kind, degree] = rising_curve(list(zip(amounts, seconds, strict=True)))
            self.tell(f"collectives of {degree} ranks", 4 * len(amounts))
        return curves

    def _measured(self, samples: Sequence[Sample]) -> Iterator[tuple[Sample, float]]:
        """Seconds of each sample, the mean over the ranks."""
        for part in _chunks(samples):
            found = self._on_ranks(measure_samples, part, self._share * len(part))
            yield from zip(part, _means(found), strict=True)
            self.tell(part[-1].instance.name, len(part))

    def _on_ranks(self, function: Callable[..., Result], *arguments: object) -> list[Result]:
        return self.pool.run(function, self.device, *arguments, ranks=self.ranks)


Result = TypeVar("Result")


def _chunks(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    part: list[Sample] = []
    for sample in samples:
        if part and (len(part) == CHUNK or sum(one.elements for one in (*part, sample)) > CHUNK_ELEMENTS):
            yield part
            part = []
        part.append(sample)
    if part:
        yield part


def _expected(sample: Sample, found: Mapping[tuple[str, Direction], list[Point]]) -> float:
    """Expected seconds, in proportion to the last measurement with fewer bytes; 0 without one."""
    before = found.get((sample.instance.name, sample.direction))
    if not before:
        return 0.0
    last, seconds = before[-1]
    return seconds * max(1.0, sample.elements / max(last.elements, 1))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _means(ranks: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each measurement over the ranks."""
    return [_mean(values) for values in zip(*ranks, strict=True)]
