"""What a model computes, up to names and the order of its steps: equal keys for equal graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..graph.graph import Buffer, Graph, Input, Model, Node, Segment, Weight
from .match import operation

Identity = tuple[object, ...]


@dataclass
class Identities:
    """Numbers for values by how they are computed, the same number in every model for the same computation."""

    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    def of(self, model: Model) -> Identity:
        """Equal for models that differ in names alone. What is computed twice counts twice."""
        known, every = self._graph(model.graph, {})
        return known[model.loss.name], tuple(known[value.name] for value in model.outputs), every

    def _number(self, *key: object) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def _graph(self, graph: Graph, outside: Mapping[str, int]) -> tuple[dict[str, int], tuple[int, ...]]:
        """The number of every value, and those of all steps, sorted. What is stored goes by its name."""
        known = dict(outside)
        every: list[int] = []
        stored: tuple[Input | Weight | Buffer, ...] = (*graph.inputs, *graph.weights, *graph.buffers)
        for item in stored:
            known[item.value.name] = self._number("stored", item.value.name)
        for step in graph.steps:
            made = self._node(step, known) if isinstance(step, Node) else self._segment(step, known)
            every.append(made)
            for position, value in enumerate(step.makes):
                known[value.name] = self._number("result", made, position)
        for update in graph.updates:
            every.append(self._number("update", known[update.buffer.name], known[update.value.name]))
        return known, tuple(sorted(every))

    def _node(self, node: Node, known: Mapping[str, int]) -> int:
        arguments = tuple(known[value.name] for value in node.arguments)
        return self._number("node", operation(node.instance), node.site, arguments)

    def _segment(self, segment: Segment, known: Mapping[str, int]) -> int:
        inside = {value.name: known[value.name] for value in segment.captured}
        entries = {value.name: self._number("entry", slot) for slot, value in enumerate(segment.entry)}
        slices = {series.part.name: self._number("slice", slot) for slot, series in enumerate(segment.sliced)}
        body, every = self._graph(segment.body, inside | entries | slices)
        initial = tuple(known[value.name] for value in segment.initial)
        exits = tuple(body[value.name] for value in segment.exit)
        sliced = tuple((known[series.whole.name], series.dim) for series in segment.sliced)
        stacked = tuple((body[series.part.name], series.dim) for series in segment.stacked)
        predicate = None if segment.predicate is None else known[segment.predicate.name]
        series = sliced, stacked, predicate
        return self._number("repeat", segment.name, segment.count, initial, exits, every, series)
