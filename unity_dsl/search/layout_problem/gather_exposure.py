"""Exposed fraction of the conversions of a graph's tensors, by where the program starts them."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph.gathers_ahead import Ahead, gathers_ahead
from ...graph.graph import Graph
from ..choices.layout_space import Hidden


def gather_exposure(graph: Graph, turns: int, ahead: float) -> Mapping[str, Hidden]:
    """The exposure of the weight gathers that the program prefetches, by name of the weight. The graph is executed
    `turns` times in a loop, or once. A gather prefetched by the previous iteration is exposed by the fraction `ahead`,
    and that of the first iteration fully. A gather prefetched by a preceding loop is exposed by `ahead` if gradients of
    the weight are summed. Other gathers are fully exposed, even those that start with the operators before a loop:
    these operators may compute less than the gather takes.
    """
    hidden = {
        Ahead.ITERATION: Hidden((1 + (turns - 1) * ahead) / turns),
        Ahead.LOOP: Hidden(ahead, if_summed=True),
    }
    return {name: hidden[reading] for name, reading in gathers_ahead(graph, turns).items()}


def values_in_turns(graph: Graph, exposed: float) -> Mapping[str, Hidden]:
    """By name, the values of a body that is interleaved with others: the others compute while such a value, or its
    gradient, is converted.
    """
    stored = [*(weight.value for weight in graph.weights), *(buffer.value for buffer in graph.buffers)]
    weights = {value.name for value in stored}
    names = (value.name for step in graph.steps for value in (*step.reads, *step.makes))
    return dict.fromkeys((name for name in names if name not in weights), Hidden(exposed, in_turns=True))
