"""Exposed fraction of the conversions of a graph's tensors, by where the program starts them."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph.graph import Graph
from ...graph.prefetched_gathers import Prefetch, prefetched_gathers
from ..choices.layout_space import ConversionOverlap


def gather_exposure(graph: Graph, iterations: int, ahead: float) -> Mapping[str, ConversionOverlap]:
    """The exposure of the weight gathers that the program prefetches, by name of the weight. The graph is executed
    `iterations` times in a loop, or once. A gather prefetched by the previous iteration is exposed by the fraction
    `ahead`, and that of the first iteration fully. A gather prefetched by a preceding loop is exposed by `ahead` if
    gradients of the weight are summed. Other gathers are fully exposed, even those that start with the operators before
    a loop: these operators may compute less than the gather takes.
    """
    overlap = {
        Prefetch.ITERATION: ConversionOverlap((1 + (iterations - 1) * ahead) / iterations),
        Prefetch.LOOP: ConversionOverlap(ahead, if_summed=True),
    }
    return {name: overlap[reading] for name, reading in prefetched_gathers(graph, iterations).items()}


def interleaved_values(graph: Graph, exposed: float) -> Mapping[str, ConversionOverlap]:
    """By name, the values of a body that is interleaved with others: the others compute while such a value, or its
    gradient, is converted.
    """
    stored = [*(weight.value for weight in graph.weights), *(buffer.value for buffer in graph.buffers)]
    weights = {value.name for value in stored}
    names = (value.name for step in graph.steps for value in (*step.reads, *step.makes))
    return dict.fromkeys((name for name in names if name not in weights), ConversionOverlap(exposed, interleaved=True))
