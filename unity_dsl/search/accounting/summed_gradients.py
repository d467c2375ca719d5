"""The part of a model's gradients that a plan sums over devices."""

from __future__ import annotations

from ...graph.layout_conversion import Conversions
from ...graph.plan import Plan, PlannedGraph, PlannedSegment


def summed_part(plan: Plan) -> float:
    """The fraction, 0 to 1, of the bytes of all gradients whose way back to the stored weight ends in a sum."""
    every = plan.model.gradient_bytes
    return _summed_bytes(plan.graph, plan.conversions) / every if every else 0.0


def _summed_bytes(graph: PlannedGraph, conversions: Conversions) -> int:
    """Bytes of a graph's summed gradients; each iteration of a repeat counts."""
    total = 0
    for weight in graph.graph.weights:
        planned = graph.values[weight.value.name]
        value = planned.value
        if value.needs_gradient and any(
            conversions.conversion(
                made.source, made.layout, value.shape, value.bytes, value.stored_bytes, in_buckets=True
            ).ends_in_sum
            for made in planned.materialised
            if made.source == planned.produced
        ):
            total += value.stored_bytes
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            total += sum(run.count * _summed_bytes(run.body, conversions) for run in step.runs)
    return total
