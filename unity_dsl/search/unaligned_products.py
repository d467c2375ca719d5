"""Products that are slow for sizes that no 8 divides, and what the step would take less (a note for the user)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ..graph.graph import DTYPE_BYTES
from ..graph.plan import Plan, PlannedGraph, PlannedNode
from ..graph.precision import arithmetic
from ..index.cost.kernels import equation_kernels
from ..index.library import Library
from ..machine.machine import Machine
from ..machine.operator_price import price_operator
from ..machine.written_figures import duration

LEAST_TOLD = 0.02
"""The part of a step that is told."""

ALIGNED_BYTES = 16
"""Tensor cores load as many at a time."""


def unaligned_notes(plan: Plan, machine: Machine, library: Library) -> Iterator[str]:
    """The size of a device's matrices that costs most, where it costs enough, the next one that does not, and how much
    shorter the step is with it.
    """
    if not machine.measured.unaligned:
        return
    aligned = replace(machine, measured=replace(machine.measured, unaligned={}))
    lost: dict[tuple[int, int], float] = {}
    for planned, times in _operators(plan.graph, 1.0):
        dtype = arithmetic(planned.node, planned.native, library)
        for size in _unaligned_sizes(planned, dtype):
            given = planned.node.instance, planned.typed, dtype, plan.mesh
            seconds, least = (
                price_operator(*given, one, planned.node.gradients, library) for one in (machine, aligned)
            )
            step = ALIGNED_BYTES // DTYPE_BYTES[dtype]
            lost[size, step] = lost.get((size, step), 0.0) + times * (seconds - least)
    for (size, step), seconds in sorted(lost.items(), key=lambda item: -item[1])[:1]:
        if seconds >= LEAST_TOLD * plan.seconds:
            yield (
                f"products of matrices with rows of {size:,} numbers are slow, as no {step} divides that: with "
                f"{-(-size // step) * step:,} the step would take {duration(seconds)} less"
            )


def _operators(graph: PlannedGraph, times: float) -> Iterator[tuple[PlannedNode, float]]:
    """All operators, those of bodies too, and how often each runs."""
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            yield step, times
        else:
            for run in step.runs:
                yield from _operators(run.body, times * run.count * step.segment.probability)


def _unaligned_sizes(planned: PlannedNode, dtype: str) -> Iterator[int]:
    """The first length of its matrices' rows on a device that is no multiple of as many numbers as are loaded."""
    step = ALIGNED_BYTES // DTYPE_BYTES[dtype]
    for kernel in equation_kernels(planned.node.instance):
        if kernel.product is not None and DTYPE_BYTES[dtype] == 2:
            sides = (kernel.product.columns, kernel.product.inner)
            sizes = [prod(planned.typed.local_sizes[axis] for axis in axes) for axes in sides]
            yield from [size for size in sizes if size % step][:1]
