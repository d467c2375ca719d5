"""Which weights decay: those of products, convolutions and look-ups, not those added or multiplied elementwise.

A weight decays if an equation reduces over one of its axes and also reads something else: data, as in
`sum(i) x[b, i] * w[o, i]` and `sum(v) [v == ids[n]] * w[v, d]`, or another weight. A tensor that is computed from
weights alone, such as a slice or a product of two, counts as these weights. Gains, biases and tables that are added
therefore do not decay, however many dimensions they have. The model decides, before any rule and whatever the plan, so
a run is the same on any number of devices.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ..index.equations.instance import Instance, Kind
from ..index.equations.term import free_axes, reads
from .graph import Graph, Model, Node, Segment

Weights = frozenset[str]
"""The weights, by their paths, from which a tensor is computed."""
Origins = dict[str, Weights | None]
"""For each value, the weights from which alone it is computed, empty for constants; None if it depends on data."""
Operands = frozenset[int]
"""Operands of an operator, by position."""


def mark_decaying(model: Model) -> Model:
    """The model with `decays` set for each of its weights."""
    found: set[str] = set()
    _collect(model.graph, "", {}, found)
    return replace(model, graph=_marked(model.graph, "", found))


def _marked(graph: Graph, prefix: str, found: set[str]) -> Graph:
    weights = tuple(replace(weight, decays=prefix + weight.value.name in found) for weight in graph.weights)
    steps = tuple(
        replace(step, body=_marked(step.body, f"{prefix}{step.name}.", found)) if isinstance(step, Segment) else step
        for step in graph.steps
    )
    return replace(graph, weights=weights, steps=steps)


def _collect(graph: Graph, prefix: str, origins: Origins, found: set[str]) -> None:
    """Adds the weights of a graph that decay to `found`. `origins` has the values that the graph reads from outside."""
    origins = dict(origins)
    values = (*(given.value for given in graph.inputs), *(buffer.value for buffer in graph.buffers))
    origins |= dict.fromkeys((value.name for value in values), None)
    for weight in graph.weights:
        origins[weight.value.name] = frozenset({prefix + weight.value.name})
    for step in graph.steps:
        if isinstance(step, Segment):
            given = {value.name: origins.get(value.name) for value in step.captured}
            # What is carried depends on data after one iteration; an initial state is a state, not a matrix.
            given |= dict.fromkeys((value.name for value in step.entry), None)
            given |= {series.part.name: origins.get(series.whole.name) for series in step.sliced}
            _collect(step.body, f"{prefix}{step.name}.", given, found)
            origins |= dict.fromkeys((value.name for value in step.makes), None)
        else:
            _follow(step, origins, found)


def _follow(node: Node, origins: Origins, found: set[str]) -> None:
    given = [origins.get(value.name) for value in node.arguments]
    reduced, results = _reductions(node.instance.kind)
    for operands, others in reduced:
        weights = _union(given, operands)
        beside = _union(given, others)
        if weights and (beside is None or beside - weights):
            found |= weights
    for value, operands in zip(node.results, results, strict=True):
        origins[value.name] = _union(given, operands)


def _union(given: list[Weights | None], operands: Operands) -> Weights | None:
    parts = [given[place] for place in operands]
    known = [part for part in parts if part is not None]
    return frozenset().union(*known) if len(known) == len(parts) else None


@lru_cache(maxsize=4096)
def _reductions(kind: Kind) -> tuple[tuple[tuple[Operands, Operands], ...], tuple[Operands, ...]]:
    """For every tensor that an equation reduces along one of its axes: the operands from which it is computed, and
    those of everything else in the equation. Then the operands of each result.
    """
    instance: Instance = kind.instance
    made = {operand.name: frozenset({place}) for place, operand in enumerate(instance.inputs)}
    reduced: list[tuple[Operands, Operands]] = []
    for equation in instance.equations:
        sources = {read.tensor: made[read.tensor] for read in reads(equation.value)}
        for read in reads(equation.value):
            if any(axis in equation.over for index in read.index for axis in free_axes(index)):
                others = (operands for tensor, operands in sources.items() if tensor != read.tensor)
                reduced.append((sources[read.tensor], frozenset().union(*others)))
        made[equation.target.name] = frozenset().union(*sources.values())
    everything = frozenset(range(len(instance.inputs)))  # for an operator without equations
    return tuple(dict.fromkeys(reduced)), tuple(made.get(output.name, everything) for output in instance.outputs)
