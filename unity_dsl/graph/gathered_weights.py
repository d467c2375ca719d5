"""Weights that operators of a plan read gathered: which of them together, and which before anything else.

Programs are written, and steps simulated, by what this says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .gathers_ahead import GathersAhead, operator_stretches
from .graph import Value
from .interleaved_repeats import Interleaved, in_turns
from .layout import Layout
from .layout_conversion import Conversion, Conversions
from .plan import PlannedGraph, PlannedNode, PlannedSegment, gathered_once

Steps = Sequence[PlannedNode | PlannedSegment]


@dataclass(frozen=True)
class GatheredWeight:
    """A weight, stored in slices, that one operator reads gathered."""

    value: Value
    stored: Layout
    gathered: Layout
    conversion: Conversion


class GatheredWeights:
    """Of a plan's model, its `graph`, and of the bodies in it the weights that operators read gathered; `ahead` are
    those whose gathers are begun ahead. What is found of a graph is kept: it is the same of every iteration of a run.
    """

    def __init__(self, graph: PlannedGraph, conversions: Conversions, interleaved: Interleaved) -> None:
        self.ahead = GathersAhead(graph.graph)
        self._conversions, self._interleaved = conversions, interleaved
        self._known: dict[int, tuple[PlannedGraph, dict[str, GatheredWeight]]] = {}  # the graph, so that its id stays

    def of(self, graph: PlannedGraph) -> Mapping[str, GatheredWeight]:
        """By name."""
        if id(graph) not in self._known:
            found = {name: self._gathered(graph, name, layout) for name, layout in gathered_once(graph).items()}
            self._known[id(graph)] = graph, found
        return self._known[id(graph)][1]

    def together(
        self, graph: PlannedGraph, steps: Iterable[PlannedNode | PlannedSegment]
    ) -> list[list[GatheredWeight]]:
        """Those that operators among these steps of a graph read, in that order: the ones whose gradients are summed in
        buckets, and the others; first the kind that is read first.
        """
        known, found = self.of(graph), dict[bool, list[GatheredWeight]]()
        for step in steps:
            for value in step.node.arguments if isinstance(step, PlannedNode) else ():
                if (weight := known.get(value.name)) is not None:
                    found.setdefault(weight.conversion.ends_in_sum, []).append(weight)
        return list(found.values())

    def first(self, graph: PlannedGraph) -> list[GatheredWeight]:
        """Those of the first operators that read any with which no loop before them begins: what can be under way
        before the graph is run.
        """
        for operators, behind_loop in operator_stretches(graph.steps):
            for weights in self.together(graph, operators):
                if not (behind_loop and weights[0].conversion.ends_in_sum):
                    return weights
        return []

    def entered(self, following: Iterable[PlannedNode | PlannedSegment]) -> list[PlannedSegment]:
        """The repeat that comes next, and those in turns with it, as far as their first iterations begin with gathers:
        these are under way before.
        """
        bodies = (step for step in following if isinstance(step, PlannedSegment))
        together = next(in_turns(bodies, self._interleaved), [])
        return [step for step in together if step.segment.predicate is None and self.first(step.runs[0].body)]

    def _gathered(self, graph: PlannedGraph, name: str, layout: Layout) -> GatheredWeight:
        planned = graph.values[name]
        value, stored = planned.value, planned.produced
        ahead = self.ahead.begins(value, stored, layout)
        conversion = self._conversions.conversion(
            stored, layout, value.shape, value.bytes, value.stored_bytes, in_buckets=True, ahead=ahead
        )
        return GatheredWeight(value, stored, layout, conversion)
