"""Weights that operators of a plan read gathered: which are gathered together, and which before anything else.

Both emitted programs and simulated steps follow this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .graph import Value
from .interleaved_repeats import Interleaved, interleaved_groups
from .layout import Layout
from .layout_conversion import Conversion, Conversions
from .plan import PlannedGraph, PlannedNode, PlannedSegment, gathered_once
from .prefetched_gathers import PrefetchedGathers, operator_stretches

Steps = Sequence[PlannedNode | PlannedSegment]


@dataclass(frozen=True)
class GatheredWeight:
    """A weight that is stored in slices and that one operator reads gathered."""

    value: Value
    stored: Layout
    gathered: Layout
    conversion: Conversion


class GatheredWeights:
    """The weights that operators read gathered, in a plan's `graph` and in its bodies. `ahead` says which gathers are
    prefetched. The weights of a graph are cached, as all iterations of a run share them.
    """

    def __init__(self, graph: PlannedGraph, conversions: Conversions, interleaved: Interleaved) -> None:
        self.ahead = PrefetchedGathers(graph.graph)
        self._conversions, self._interleaved = conversions, interleaved
        self._known: dict[int, tuple[PlannedGraph, dict[str, GatheredWeight]]] = {}  # the graph, so that its id stays

    def of(self, graph: PlannedGraph) -> Mapping[str, GatheredWeight]:
        """The gathered weights of a graph, by name."""
        if id(graph) not in self._known:
            found = {name: self._gathered(graph, name, layout) for name, layout in gathered_once(graph).items()}
            self._known[id(graph)] = graph, found
        return self._known[id(graph)][1]

    def together(
        self, graph: PlannedGraph, steps: Iterable[PlannedNode | PlannedSegment]
    ) -> list[list[GatheredWeight]]:
        """The gathered weights that operators among these steps read, in that order and in up to two groups: those
        whose gradients are summed in buckets, and the others. The group that is read first comes first.
        """
        known, found = self.of(graph), dict[bool, list[GatheredWeight]]()
        for step in steps:
            for value in step.node.arguments if isinstance(step, PlannedNode) else ():
                if (weight := known.get(value.name)) is not None:
                    found.setdefault(weight.conversion.ends_in_sum, []).append(weight)
        return list(found.values())

    def first(self, graph: PlannedGraph) -> list[GatheredWeight]:
        """The gathered weights that can be started before the graph runs: those that the first operators read, unless a
        loop before the operators prefetches them.
        """
        for operators, behind_loop in operator_stretches(graph.steps):
            for weights in self.together(graph, operators):
                if not (behind_loop and weights[0].conversion.ends_in_sum):
                    return weights
        return []

    def entered(self, following: Iterable[PlannedNode | PlannedSegment]) -> list[PlannedSegment]:
        """The next repeat and those interleaved with it whose first iterations begin with gathers. These gathers are
        started before.
        """
        bodies = (step for step in following if isinstance(step, PlannedSegment))
        together = next(interleaved_groups(bodies, self._interleaved), [])
        return [step for step in together if step.segment.predicate is None and self.first(step.runs[0].body)]

    def _gathered(self, graph: PlannedGraph, name: str, layout: Layout) -> GatheredWeight:
        planned = graph.values[name]
        value, stored = planned.value, planned.produced
        ahead = self.ahead.begins(value, stored, layout)
        conversion = self._conversions.conversion(
            stored, layout, value.shape, value.bytes, value.stored_bytes, in_buckets=True, ahead=ahead
        )
        return GatheredWeight(value, stored, layout, conversion)
