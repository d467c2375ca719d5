"""Cost of a finished plan, by the prices that the search minimised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

import numpy as np

from ...graph.graph import Value
from ...graph.layout import Layout, Mesh, Placement, invariant
from ...graph.plan import Cost, PlannedGraph, PlannedNode, PlannedSegment, PlannedValue
from ...graph.precision import arithmetic
from ...machine.cast_price import price_stored_cast
from ...machine.collective_price import local_fraction
from ...machine.conversion_model import ConversionModel
from ...machine.operator_price import price_accumulation, price_inner, price_update
from ..choices.axis_choices import axis_choices, kinds_along
from ..choices.layout_space import NO_OVERLAP, ConversionOverlap
from ..choices.operator_options import price_node
from ..choices.restriction import stored_values
from ..layout_problem.loop_price import price_captured, price_sliced, price_stacked
from ..layout_problem.variable_meaning import Meaning


@dataclass(frozen=True)
class _Spent:
    """Cost on all devices (`everywhere`), and cost only on devices with some coordinates (`placed`)."""

    everywhere: Cost = field(default_factory=Cost)
    placed: Mapping[Placement, Cost] = field(default_factory=dict)

    @staticmethod
    def at(placement: Placement, cost: Cost) -> _Spent:
        return _Spent(placed={placement: cost}) if placement else _Spent(cost)

    def plus(self, other: _Spent, executed: float = 1.0) -> _Spent:
        placed = dict(self.placed)
        for placement, cost in other.placed.items():
            placed[placement] = _sum(placed.get(placement, Cost()), cost, executed)
        return _Spent(_sum(self.everywhere, other.everywhere, executed), placed)

    def of_the_busiest(self, mesh: Mesh) -> Cost:
        """The cost on the device that has the most to do: others wait for it where they communicate."""
        if not self.placed:
            return self.everywhere
        axes = sorted({axis for placement in self.placed for axis, _ in placement})
        devices = product(*([(axis, coordinate) for coordinate in range(mesh.degrees[axis])] for axis in axes))
        return max((self._of_device(frozenset(device)) for device in devices), key=lambda cost: cost.seconds)

    def _of_device(self, coordinates: frozenset[tuple[int, int]]) -> Cost:
        own = (cost for placement, cost in self.placed.items() if coordinates >= {*placement})
        return reduce(_sum, own, self.everywhere)


def plan_cost(graph: PlannedGraph, meaning: Meaning, prices: ConversionModel, loss: Value | None) -> Cost:
    """The cost of one step on the busiest device, without its memory. `loss`, if any, is read whole at the end.

    For operators that are placed on some devices the search counts a fraction of their seconds, as if all devices had
    equally much to do. Its cost is no more than this one.
    """
    spent = _graph_cost(graph, meaning, prices, [] if loss is None else [(loss, invariant(prices.mesh))])
    return spent.of_the_busiest(prices.mesh)


def _graph_cost(
    graph: PlannedGraph, meaning: Meaning, prices: ConversionModel, left: Iterable[tuple[Value, Layout]]
) -> _Spent:
    """The cost of a graph. `left` are values that are read after it."""
    mesh, machine = prices.mesh, prices.machine
    total = _Spent()
    reads: dict[str, set[Layout]] = {}
    for value, layout in left:
        reads.setdefault(value.name, set()).add(layout)
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            total = total.plus(_Spent.at(step.placement, _node_cost(step, prices)))
            for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
                reads.setdefault(value.name, set()).add(layout)
    for update in graph.graph.updates:
        reads.setdefault(update.value.name, set()).add(graph.values[update.buffer.name].produced)
    bodies = iter(meaning.bodies)
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            body, segment = next(bodies), step.segment
            for value, layout in step.border.reads(segment):
                reads.setdefault(value.name, set()).add(layout)
            total = total.plus(_Spent(Cost(compute=_loop_seconds(step, meaning, prices))))
            for run in step.runs:
                found = _graph_cost(run.body, body, prices, step.border.leaves(segment))
                total = total.plus(found, run.count * segment.probability)
    for value in stored_values(graph.graph):
        planned = graph.values[value.name]
        held, placement = local_fraction(planned.produced, mesh), planned.produced.placement
        total = total.plus(_Spent.at(placement, Cost(compute=price_stored_cast(value, held, machine))))
        if value.is_weight and value.needs_gradient:
            count = value.stored_bytes * held
            updated = Cost(update=price_update(count, machine), accumulation=price_accumulation(count, machine))
            total = total.plus(_Spent.at(placement, updated))
    weights = {stored.value.name for stored in graph.graph.weights}
    for name, planned in graph.values.items():
        if name not in meaning.free:
            overlap, asked = meaning.overlap.get(name, NO_OVERLAP), reads.get(name, set())
            total = total.plus(_Spent(_conversion_cost(planned, asked, prices, overlap, stored=name in weights)))
    return total


def _sum(first: Cost, second: Cost, executed: float = 1.0) -> Cost:
    return Cost(
        first.compute + executed * second.compute,
        first.communication + executed * second.communication,
        first.update + executed * second.update,
        synchronisation=first.synchronisation + executed * second.synchronisation,
        accumulation=first.accumulation + executed * second.accumulation,
    )


def _loop_seconds(step: PlannedSegment, meaning: Meaning, prices: ConversionModel) -> float:
    """Seconds of a loop besides its iterations."""
    segment, border, machine = step.segment, step.border, prices.machine
    seconds = 0.0
    for value, layout in zip(segment.captured, border.captured, strict=True):
        seconds += price_captured(segment, value, local_fraction(layout, prices.mesh), machine)
    for series, layout in zip(segment.sliced, border.sliced, strict=True):
        seconds += price_sliced(series.whole, local_fraction(layout, prices.mesh), machine)
    for series, layout in zip(segment.stacked, border.stacked, strict=True):
        if series.whole.name not in meaning.free:
            seconds += price_stacked(series.whole, local_fraction(layout, prices.mesh), machine)
    return seconds


def _node_cost(planned: PlannedNode, prices: ConversionModel) -> Cost:
    node, typed = planned.node, planned.typed
    mesh, machine, library = prices.mesh, prices.machine, prices.library
    seconds = float(price_node(node, [typed], mesh, machine, library)[0])
    dtype = arithmetic(node, typed.native, library)
    inner = price_inner(node.instance, typed, dtype, mesh, machine, any(node.gradients))
    return Cost(compute=seconds - inner, communication=inner)


def conversion_seconds(planned: PlannedValue, layout: Layout, prices: ConversionModel) -> float:
    """Seconds of making a layout from the produced one, without the gradient's way back."""
    value = planned.value
    found = prices.conversion(planned.produced, layout, value.shape, value.bytes)
    return prices.seconds_of(found.forward, planned.produced, value.shape, value.bytes)


def _conversion_cost(
    planned: PlannedValue, reads: set[Layout], prices: ConversionModel, overlap: ConversionOverlap, *, stored: bool
) -> Cost:
    """The cost of a value's conversions. The way back counts only if a reader is reached: a value that merely leaves
    the program has no gradient. `stored` says that it is a weight. Conversions may be `overlap` in part.
    """
    value = planned.value
    reached = set(reads)
    seconds = once = 0.0
    for made in reversed(planned.materialised):
        shape, back = value.shape, value.stored_bytes
        in_buckets = value.is_weight and made.source == planned.produced
        begun = 1.0
        if made.source == planned.produced and not overlap.interleaved and not overlap.by_products:
            begun = overlap.of(made.source, made.layout)
        found = prices.conversion(made.source, made.layout, shape, value.bytes, back, in_buckets=in_buckets)
        steps = prices.steps(made.source, made.layout, shape, value.bytes, begun=begun)
        there = prices.seconds_of(steps, made.source, shape, value.bytes, begun=begun)
        returning, start = 0.0, made.layout.transpose
        if value.needs_gradient and made.layout in reached:
            returning = prices.seconds_of(found.backward, start, shape, back, in_buckets=in_buckets)
            if stored and made.source == planned.produced and found.ends_in_whole_sum:
                once += returning - prices.seconds_of(found.backward[:-1], start, shape, back)
        if overlap.by_products:
            along = (axis_choices([kinds_along(layout)])[0] for layout in (made.source, made.layout))
            seconds += float(overlap.beside(np.array([there, returning]), *along).sum())
        elif overlap.interleaved:
            seconds += float(overlap.of_both(there, returning)) * (there + returning)
        else:
            seconds += there + returning
        if made.layout in reached:
            reached.add(made.source)
    return Cost(communication=seconds, synchronisation=once)
