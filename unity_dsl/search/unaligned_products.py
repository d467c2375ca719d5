"""A note for the user on products that are slow because 8 does not divide their sizes, and what aligned sizes would
save.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ..graph.graph import DTYPE_BYTES
from ..graph.plan import Advice, Plan, PlannedGraph, PlannedNode
from ..graph.precision import arithmetic
from ..index.cost.kernels import equation_kernels
from ..index.library import Library
from ..machine.machine import Machine
from ..machine.measured_price import HALF, TOGETHER
from ..machine.operator_price import is_padded, price_operator
from ..written_figures import duration

LEAST_TOLD = 0.02
"""Smallest fraction of a step that a note tells."""


def unaligned_notes(plan: Plan, machine: Machine, library: Library) -> Iterator[str]:
    """A note on the size of a device's matrices that costs most, if that is enough: the next aligned size, and how much
    shorter the step is with it. Products that are padded are left out.
    """
    if not machine.measured.unaligned:
        return
    aligned = replace(machine, measured=replace(machine.measured, unaligned={}))
    lost: dict[int, float] = {}
    for planned, times in _operators(plan.graph, 1.0):
        dtype = arithmetic(planned.node, planned.native, library)
        size = _unaligned_size(planned) if DTYPE_BYTES[dtype] == HALF else None
        if size is not None:
            given = planned.node.instance, replace(planned.typed, native=planned.native), dtype, plan.mesh
            if is_padded(*given, machine, library):
                continue
            seconds, least = (
                price_operator(*given, one, planned.node.gradients, library) for one in (machine, aligned)
            )
            lost[size] = lost.get(size, 0.0) + times * (seconds - least)
    size = max(lost, key=lambda size: lost[size], default=0)
    if size and lost[size] >= LEAST_TOLD * plan.seconds:
        yield Advice(
            f"products of matrices with rows of {size:,} numbers are slow, as no {TOGETHER} divides that: with "
            f"{-(-size // TOGETHER) * TOGETHER:,} the step would take {duration(lost[size])} less"
        )


def _operators(graph: PlannedGraph, times: float) -> Iterator[tuple[PlannedNode, float]]:
    """All operators, those of bodies too, and how often each runs."""
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            yield step, times
        else:
            for run in step.runs:
                yield from _operators(run.body, times * run.count * step.segment.probability)


def _unaligned_size(planned: PlannedNode) -> int | None:
    """The first row length of an operator's matrices on a device that is no multiple of what is loaded at a time."""
    products = [kernel.product for kernel in equation_kernels(planned.node.instance) if kernel.product is not None]
    sides = [axes for product in products for axes in (product.columns, product.inner)]
    sizes = (prod(planned.typed.local_sizes[axis] for axis in axes) for axes in sides)
    return next((size for size in sizes if size % TOGETHER), None)
