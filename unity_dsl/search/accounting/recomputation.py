"""Which segments of a plan the backward pass recomputes, and what that costs.

An iteration of such a segment keeps what enters it. Its forward is repeated before its backward (T. Chen et al.,
"Training deep nets with sublinear memory cost", 2016), up to the last operator that saves something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...graph.graph import Graph, Segment, Value
from ...graph.layout import Layout, Mesh
from ...graph.local_executions import execution_of
from ...graph.plan import Cost, PlannedGraph, PlannedNode, PlannedSegment
from ...graph.precision import arithmetic
from ...index.library import Library
from ...machine.cast_price import price_stored_cast
from ...machine.collective_price import local_fraction
from ...machine.conversion_model import ConversionModel
from ...machine.operator_price import price_inner
from ..choices.operator_options import price_node

Steps = Sequence[PlannedNode | PlannedSegment]


def segments(graph: Graph, prefix: str = "") -> Iterator[tuple[str, Segment]]:
    """The segments of a graph with their paths, outer ones before those inside."""
    for step in graph.steps:
        if isinstance(step, Segment):
            yield prefix + step.name, step
            yield from segments(step.body, f"{prefix}{step.name}.")


def outermost(graph: Graph) -> tuple[str, ...]:
    """The paths of the segments that are in no other one."""
    return tuple(step.name for step in graph.steps if isinstance(step, Segment))


def steps_again(body: PlannedGraph, mesh: Mesh, library: Library) -> tuple[Steps, PlannedNode | None]:
    """The steps of a body that are recomputed, up to the last that saves something, and the next one if only its
    operands are saved.
    """
    for number in range(len(body.steps), 0, -1):
        step = body.steps[number - 1]
        if isinstance(step, PlannedSegment):
            return body.steps[:number], None
        run = execution_of(step, (None,) * len(step.node.arguments), mesh, library)
        if run.saved and any(step.node.gradients):
            is_run = step.typed.reuse.over is not None or not set(run.built).isdisjoint(run.saved)
            return (body.steps[:number], None) if is_run else (body.steps[: number - 1], step)
    return (), None


@dataclass(frozen=True)
class ForwardPrice:
    """Prices the forward pass of bodies in a plan: seconds of operators, and of communication."""

    prices: ConversionModel

    def of_segments(self, graph: PlannedGraph, prefix: str = "", times: float = 1.0) -> Iterator[tuple[str, Cost]]:
        """The paths of a graph's segments, each with the cost of running all its iterations once more in a step."""
        for step in graph.steps:
            if isinstance(step, PlannedSegment):
                segment, path = step.segment, prefix + step.segment.name
                total = Cost()
                for run in step.runs:
                    executed = times * run.count * segment.probability
                    steps, last = steps_again(run.body, self.prices.mesh, self.prices.library)
                    total = added(total, self._forward(run.body, steps, last), executed)
                    yield from self.of_segments(run.body, f"{path}.", executed)
                yield path, total

    def of_last(self, graph: PlannedGraph, iterations: Mapping[str, int], prefix: str = "", times: float = 1.0) -> Cost:
        """The cost of running these numbers of last iterations of segments, by path, once more in a step. Conversions
        of weights are not included.
        """
        total = Cost()
        for step in graph.steps:
            if isinstance(step, PlannedSegment):
                segment, path = step.segment, prefix + step.segment.name
                first_ones = segment.count - iterations.get(path, 0)
                for run, is_first in (part for whole in step.runs for part in whole.parts(first_ones)):
                    executed = times * run.count * segment.probability
                    if not is_first:
                        steps, last = steps_again(run.body, self.prices.mesh, self.prices.library)
                        total = added(total, self._forward(run.body, steps, last, weights=False), executed)
                    total = added(total, self.of_last(run.body, iterations, f"{path}.", executed))
        return total

    def _forward(
        self, graph: PlannedGraph, steps: Steps, last: PlannedNode | None = None, *, weights: bool = True
    ) -> Cost:
        """The cost of these steps, and of conversions to the layouts that they and the `last` one read. Conversions of
        `weights` may be left out.
        """
        prices, total = self.prices, Cost()
        mesh, machine, library = prices.mesh, prices.machine, prices.library
        wanted: dict[str, set[Layout]] = {}
        for step in steps:
            if isinstance(step, PlannedNode):
                node, typed = step.node, step.typed
                seconds = float(price_node(node, [typed], mesh, machine, library, backward=False)[0])
                inner = price_inner(node.instance, typed, arithmetic(node, typed.native, library), mesh, machine, False)
                total = added(total, Cost(compute=seconds - inner, communication=inner))
            else:
                for run in step.runs:
                    found = self._forward(run.body, run.body.steps, weights=weights)
                    total = added(total, found, step.segment.probability * run.count)
        for step in (*steps, *(() if last is None else (last,))):
            for value, layout in _reads(step):
                wanted.setdefault(value.name, set()).add(layout)
        for weight in graph.graph.weights if weights else ():
            held = local_fraction(graph.values[weight.value.name].produced, mesh)
            total = added(total, Cost(compute=price_stored_cast(weight.value, held, machine)))
        return added(total, Cost(communication=self._conversions(graph, wanted, weights)))

    def _conversions(self, graph: PlannedGraph, wanted: Mapping[str, set[Layout]], weights: bool) -> float:
        seconds, prices = 0.0, self.prices
        for name, planned in graph.values.items():
            value, reached = planned.value, set(wanted.get(name, ()))
            if value.is_weight and not weights:
                continue
            for made in reversed(planned.materialised):
                if made.layout in reached:
                    begun = prices.machine.exposure.gathers if value.is_weight else 1.0
                    steps = prices.steps(made.source, made.layout, value.shape, value.bytes, begun=begun)
                    seconds += prices.seconds_of(steps, made.source, value.shape, value.bytes, begun=begun)
                    reached.add(made.source)
        return seconds


def added(first: Cost, second: Cost, times: float = 1.0) -> Cost:
    """Seconds of one cost plus `times` those of another. The memory is that of the first."""
    compute, communication = first.compute + times * second.compute, first.communication + times * second.communication
    return replace(first, compute=compute, communication=communication)


def _reads(step: PlannedNode | PlannedSegment) -> Iterable[tuple[Value, Layout]]:
    """The values of its graph that a step reads, with their layouts."""
    if isinstance(step, PlannedNode):
        return zip(step.node.arguments, step.typed.arguments, strict=True)
    return step.border.reads(step.segment)
