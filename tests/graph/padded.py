"""Compares a padded model with the model: same numbers in the unpadded region, copies of the last row and zeros behind
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np

from unity_dsl.graph.graph import Graph, Model, Value
from unity_dsl.graph.padding import paddable
from unity_dsl.index.library import Library

from .evaluation import Array, evaluate_model


def random_padding(model: Model, random: Random, part: float = 0.6) -> dict[str, int]:
    """Random choice of the axes that can be padded, each lengthened by one to three positions."""
    chosen = {place: axis for place, axis in paddable(model).items() if random.random() < part}
    return {place: (axis.size + random.randint(1, 3)) * axis.unit for place, axis in chosen.items()}


def largest_difference(model: Model, padded: Model, library: Library, seed: int, training: bool = True) -> float:
    """Largest relative difference of the loss, outputs and updated buffers in the unpadded region."""
    random = np.random.default_rng(seed)
    inputs = {given.value.name: _drawn(given.value, random) for given in model.graph.inputs}
    stored = {name: _drawn(value, random) for name, value in _stored(model.graph, "")}
    for name, array in stored.items():
        stored[name] = np.abs(array) + 0.5 if name.endswith(("variance", "var")) else array
    longer = {given.value.name: _rows(inputs[given.value.name], given.value) for given in padded.graph.inputs}
    held = {name: _zeros(stored[name], value) for name, value in _stored(padded.graph, "")}
    with np.errstate(all="ignore"):
        one = evaluate_model(model, library, inputs, stored, training=training)
        other = evaluate_model(padded, library, longer, held, training=training)
    pairs = [(np.asarray(one.loss), np.asarray(other.loss))]
    pairs += [(array, other.outputs[name]) for name, array in one.outputs.items()]
    pairs += [(array, other.updated[name]) for name, array in one.updated.items()]
    return max(_difference(array, longer) for array, longer in pairs)


def _difference(array: Array, longer: Array) -> float:
    front = longer[tuple(map(slice, array.shape))]
    return float(np.max(np.abs(front - array), initial=0) / (np.max(np.abs(array), initial=0) + 1e-300))


def _drawn(value: Value, random: np.random.Generator) -> Array:
    if value.integer_range is not None:
        return random.integers(0, value.integer_range, value.shape)
    return random.normal(size=value.shape) * 0.5


def _stored(graph: Graph, prefix: str) -> Iterator[tuple[str, Value]]:
    for kept in (*graph.weights, *graph.buffers):
        yield prefix + kept.value.name, kept.value
    for segment in graph.segments:
        for path in segment.paths:
            yield from _stored(segment.body, prefix + path)


def _zeros(array: Array, value: Value) -> Array:
    longer = np.zeros(value.shape, array.dtype)
    longer[tuple(map(slice, array.shape))] = array
    return longer


def _rows(array: Array, value: Value) -> Array:
    if not array.ndim:
        return array
    rows = np.minimum(np.arange(value.shape[0]), array.shape[0] - 1)
    return _zeros(array[rows], value)
