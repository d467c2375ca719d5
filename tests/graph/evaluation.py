"""Evaluates a model's graph with NumPy in float64, operator by operator from the declarations. A reference for the
tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unity_dsl.graph.graph import Graph, Model, Segment
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.library import Library

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Returned:
    """What a model returns. `updated` holds the buffers that a step changes, after the step, by their full names."""

    loss: float
    outputs: dict[str, Array]
    updated: dict[str, Array]


def evaluate_model(
    model: Model,
    library: Library,
    inputs: Mapping[str, Array],
    stored: Mapping[str, Array],
    *,
    training: bool = True,
) -> Returned:
    """Evaluates a model. `stored` holds its weights and buffers by their full names, such as `layer.0.w`."""
    values = dict(inputs)
    updated: dict[str, Array] = {}
    _run(model.graph, library, values, stored, "", training, updated)
    outputs = {name: values[value.name] for name, value in zip(model.output_names, model.outputs, strict=True)}
    return Returned(float(values[model.loss.name]), outputs, updated)


def _run(
    graph: Graph,
    library: Library,
    values: dict[str, Array],
    stored: Mapping[str, Array],
    prefix: str,
    training: bool,
    updated: dict[str, Array],
) -> None:
    """Computes every value of the graph into `values`, and checks each against the shape in the graph."""
    for item in (*graph.weights, *graph.buffers):
        values[item.value.name] = stored[prefix + item.value.name]
    for item in (*graph.inputs, *graph.weights, *graph.buffers):
        assert values[item.value.name].shape == item.value.shape, item.value.name
    for step in graph.steps:
        if isinstance(step, Segment):
            results = _iterate(step, library, values, stored, prefix, training, updated)
        else:
            arguments = [values[value.name] for value in step.arguments]
            results = evaluate(step.instance, arguments, library, training=training)
        for value, array in zip(step.makes, results, strict=True):
            assert array.shape == value.shape, value.name
            values[value.name] = np.asarray(array)
    if training:
        updated |= {prefix + update.buffer.name: values[update.value.name] for update in graph.updates}


def _iterate(
    segment: Segment,
    library: Library,
    values: Mapping[str, Array],
    stored: Mapping[str, Array],
    prefix: str,
    training: bool,
    updated: dict[str, Array],
) -> list[Array]:
    """Results of a repeat, a scan or a cond: the carried values, then the stacked ones."""
    carried = [values[value.name] for value in segment.initial]
    made: list[list[Array]] = [[] for _ in segment.stacked]
    executed = segment.predicate is None or bool(values[segment.predicate.name])
    for iteration, path in enumerate(segment.paths if executed else ()):
        inside = {value.name: values[value.name] for value in segment.captured}
        inside |= {value.name: array for value, array in zip(segment.entry, carried, strict=True)}
        for series in segment.sliced:
            inside[series.part.name] = values[series.whole.name].take(iteration, series.dim)
        _run(segment.body, library, inside, stored, prefix + path, training, updated)
        carried = [inside[value.name] for value in segment.exit]
        for parts, series in zip(made, segment.stacked, strict=True):
            parts.append(inside[series.part.name])
    stacks = [np.stack(parts, series.dim) for parts, series in zip(made, segment.stacked, strict=True)]
    return [*carried, *stacks]
