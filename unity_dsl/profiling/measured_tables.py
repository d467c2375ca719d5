"""Curves and grids from measured points, smoothed so that more work never takes less time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from ..index.cost.kernels import equation_kernels
from ..index.cost.lowering_class import LoweringClass, lowering_class
from ..machine.measured_curves import Curve, Numbers, ProductGrid
from ..machine.measured_operators import CurveKey, Direction, WorkCurve, class_name
from .samples import ProductPlan, Sample

Point = tuple[Sample, float]
"""A measurement and its seconds."""

UNLIKE = 1.25
"""An operator has a curve of its own if its times differ from its class's by more than this factor."""

LEAST = 1e-8
"""Least seconds of one product, as a batch's launch is subtracted."""


def operator_curves(
    points: Mapping[tuple[str, Direction], Sequence[Point]], amounts: Sequence[int], dtype: str
) -> dict[CurveKey, WorkCurve]:
    """Curves of classes over `amounts` of bytes, medians of their operators' curves, and curves of operators that
    differ from their class.
    """
    own: dict[CurveKey, WorkCurve] = {}
    members: dict[tuple[LoweringClass, Direction], list[WorkCurve]] = {}
    # An operator that passes gradients on unchanged has nothing to measure.
    worked = {key: found for key, found in points.items() if all(sample.bytes for sample, _ in found)}
    for (name, direction), measured in worked.items():
        instance = measured[0][0].instance
        over = "flops" if _has_products(measured[0][0]) else "bytes"
        curve = rising_curve([(_amount(sample, over), seconds) for sample, seconds in measured])
        own[CurveKey(name, dtype, direction)] = WorkCurve(over, curve)
        if over == "bytes" and (lowering_class(instance) is not LoweringClass.VIEW or _is_view(name, direction)):
            members.setdefault((lowering_class(instance), direction), []).append(WorkCurve(over, curve))
    classes = {
        CurveKey(class_name(kind), dtype, direction): WorkCurve("bytes", _middle(curves, amounts))
        for (kind, direction), curves in members.items()
    }
    views = CurveKey(class_name(LoweringClass.VIEW), dtype, Direction.FORWARD)
    if views in classes:
        classes[replace(views, direction=Direction.BACKWARD)] = classes[views]
    kinds = {name: lowering_class(measured[0][0].instance) for (name, _), measured in points.items()}
    unlike = {
        key: curve
        for key, curve in own.items()
        if not _alike(curve, classes.get(CurveKey(class_name(kinds[key.name]), dtype, key.direction)))
    }
    return {**classes, **unlike}


def _is_view(name: str, direction: Direction) -> bool:
    """Whether an operator that only moves elements makes a view for any operands: the forward of `slice`.

    The gradient of a view of all elements is a view as well.
    """
    return name == "slice" and direction is Direction.FORWARD


def _has_products(sample: Sample) -> bool:
    return any(kernel.product is not None for kernel in equation_kernels(sample.instance))


def _amount(sample: Sample, over: str) -> float:
    return float(sample.done.flops) if over == "flops" else sample.bytes


def _middle(curves: Sequence[WorkCurve], amounts: Sequence[int]) -> Curve:
    return rising_curve([(float(n), median(float(curve.curve.at(float(n))) for curve in curves)) for n in amounts])


def _alike(own: WorkCurve, of_class: WorkCurve | None) -> bool:
    if of_class is None or own.over != of_class.over:
        return False
    ratios = [s / float(of_class.curve.at(n)) for n, s in zip(own.curve.amounts, own.curve.seconds, strict=True)]
    return all(1 / UNLIKE <= ratio <= UNLIKE for ratio in ratios)


def rising_curve(points: Sequence[tuple[float, float]]) -> Curve:
    """The curve of points (amount, seconds): the median for each amount, smoothed so that it does not fall."""
    by_amount: dict[float, list[float]] = {}
    for amount, seconds in sorted(points):
        by_amount.setdefault(_rounded(amount), []).append(seconds)
    times = rising(np.array([median(found) for found in by_amount.values()]))
    return Curve(tuple(by_amount), tuple(map(_rounded_time, times.tolist())))


def product_grid(plan: ProductPlan, seconds: Numbers, launch: float) -> ProductGrid:
    """The grid of measured seconds, which have the plan's shape. For a batch `launch` is stored separately."""
    if plan.batched:
        batches = [[[plan.batch(m, n, k) for k in plan.inner] for n in plan.columns] for m in plan.rows]
        seconds = np.maximum(seconds - launch, LEAST) / np.array(batches)
    for dim in range(seconds.ndim):
        seconds = rising(seconds, dim)
    rounded = np.vectorize(_rounded_time)(seconds)
    rows, columns, inner = (tuple(map(float, side)) for side in (plan.rows, plan.columns, plan.inner))
    return ProductGrid(rows, columns, inner, rounded, _rounded_time(launch) if plan.batched else 0.0)


def rising(seconds: Numbers, dim: int = 0) -> Numbers:
    """The seconds, smoothed so that they do not fall along a dimension: the geometric mean of the largest up to each
    point and the smallest from it on. Seconds that already rise are unchanged.
    """
    before = np.maximum.accumulate(seconds, axis=dim)
    after = np.flip(np.minimum.accumulate(np.flip(seconds, dim), axis=dim), dim)
    return np.asarray(np.sqrt(before * after))


def _rounded(amount: float) -> float:
    return float(f"{amount:.6g}")


def _rounded_time(seconds: float) -> float:
    """The seconds rounded to four digits in microseconds, as in the file."""
    return float(f"{seconds * 1e6:.4g}") * 1e-6
