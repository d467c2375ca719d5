"""A model's graph evaluated with NumPy in float64, operator by operator from the declarations. The tests' reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unity_dsl.graph.graph import Graph, Model, Segment
from unity_dsl.index.evaluate import evaluate
from unity_dsl.index.library import Library

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Returned:
    loss: float
    outputs: dict[str, Array]


def evaluate_model(
    model: Model,
    library: Library,
    inputs: Mapping[str, Array],
    stored: Mapping[str, Array],
    *,
    training: bool = True,
) -> Returned:
    """What a model returns. `stored` are its weights and buffers under their full names, `layer.0.w`."""
    values = dict(inputs)
    _run(model.graph, library, values, stored, "", training)
    outputs = {name: values[value.name] for name, value in zip(model.output_names, model.outputs, strict=True)}
    return Returned(float(values[model.loss.name]), outputs)


def _run(
    graph: Graph, library: Library, values: dict[str, Array], stored: Mapping[str, Array], prefix: str, training: bool
) -> None:
    """Compute every value of the graph into `values`, and check each against the shape that the graph says."""
    for item in (*graph.weights, *graph.buffers):
        values[item.value.name] = stored[prefix + item.value.name]
    for item in (*graph.inputs, *graph.weights, *graph.buffers):
        assert values[item.value.name].shape == item.value.shape, item.value.name
    for step in graph.steps:
        if isinstance(step, Segment):
            carried = [values[value.name] for value in step.initial]
            for iteration in range(step.count):
                inside = {value.name: values[value.name] for value in step.captured}
                inside |= {value.name: array for value, array in zip(step.entry, carried, strict=True)}
                _run(step.body, library, inside, stored, f"{prefix}{step.name}.{iteration}.", training)
                carried = [inside[value.name] for value in step.exit]
            results = carried
        else:
            arguments = [values[value.name] for value in step.arguments]
            results = evaluate(step.instance, arguments, library, training=training)
        for value, array in zip(step.results, results, strict=True):
            assert array.shape == value.shape, value.name
            values[value.name] = np.asarray(array)
