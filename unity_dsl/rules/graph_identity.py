"""Canonical keys of graphs, up to names and the order of operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..graph.graph import Buffer, Graph, Input, Model, Node, Segment, Weight
from ..index.equations.instance import Instance
from ..syntax.ast import Name, Read

Identity = tuple[object, ...]


@dataclass
class Identities:
    """Value numbering across models: equal numbers for equal computations."""

    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    def of(self, model: Model) -> Identity:
        """The key of a model; models that differ only in names have equal keys.

        Repeated computations count with multiplicity.
        """
        known, every = self._graph(model.graph, {})
        return tuple(known[value.name] for value in model.returned), every

    def _number(self, *key: object) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def _graph(self, graph: Graph, outside: Mapping[str, int]) -> tuple[dict[str, int], tuple[int, ...]]:
        """The number of every value, and the sorted numbers of all steps. Stored tensors are numbered by name."""
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


# ---------------------------------------------------------------------------------------------- operators


def operation(instance: Instance) -> tuple[object, ...]:
    """The key of an operator up to names of axes: equal for equal functions of equal shapes.

    Adjacent axes of a pattern are merged, and those of size 1 dropped.
    """
    inputs = tuple((instance.shape(operand), operand.integer_range) for operand in instance.inputs)
    outputs = tuple((instance.shape(operand), operand.integer_range) for operand in instance.outputs)
    attributes = tuple(sorted(instance.attributes.items()))
    pattern = None if instance.native else _pattern(instance)
    return instance.name, attributes, inputs, outputs, pattern


def is_identity_rearrangement(instance: Instance) -> bool:
    """Whether an operator is a rearrangement equal to the identity."""
    if instance.name != "rearrange" or instance.native:
        return False
    places = [place for _, place in _pattern(instance)]
    return instance.shape(instance.inputs[0]) == instance.shape(instance.outputs[0]) and places == sorted(places)


def is_identity(instance: Instance) -> bool:
    """Whether an operator returns its operand unchanged, in training and in evaluation, like dropout at p = 0."""
    if len(instance.inputs) != 1 or len(instance.outputs) != 1 or len(instance.equations) != 1 or instance.evaluation:
        return False
    (operand,), (equation,) = instance.inputs, instance.equations
    index = tuple(map(Name, equation.target.axes))
    same = operand.dims == equation.target.dims and operand.integer_range == equation.target.integer_range
    return same and equation.kind is None and equation.value == Read(operand.name, index)


def _pattern(instance: Instance) -> tuple[tuple[int, int], ...]:
    """(size, position in the result) of each run of adjacent source axes; position -1 if the run is reduced."""
    (source,), target = instance.inputs, instance.outputs[0]
    places = {axis: place for place, axis in enumerate(a for a in target.axes if instance.sizes[a] != 1)}
    runs: list[tuple[int, list[int]]] = []
    for axis in source.axes:
        size, place = instance.sizes[axis], places.get(axis, -1)
        if size == 1:
            continue
        if runs and _joins(runs[-1][1][-1], place):
            runs[-1] = runs[-1][0] * size, [*runs[-1][1], place]
        else:
            runs.append((size, [place]))
    order = sorted(at[0] for _, at in runs if at[0] >= 0)
    return tuple((size, order.index(at[0]) if at[0] >= 0 else -1) for size, at in runs)


def _joins(last: int, place: int) -> bool:
    """Whether an axis extends the run before it: both reduced, or adjacent in the result."""
    return last == place == -1 or (last >= 0 and place == last + 1)
