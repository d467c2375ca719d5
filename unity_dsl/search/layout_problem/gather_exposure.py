"""How much of the conversions of a graph's tensors nothing hides, by where the program begins them."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph.gathers_ahead import Ahead, gathers_ahead
from ...graph.graph import Graph
from ..choices.layout_space import Hidden


def gather_exposure(graph: Graph, turns: int, ahead: float) -> Mapping[str, Hidden]:
    """By name of a weight what hides its gathers: of those begun ahead the part `ahead` is exposed, of that of a loop's
    first iteration all, and behind a loop of those alone that have sums of gradients. The graph is run `turns` times in
    a loop, or once. Of what is left out nothing is hidden: what begins with the operators before a loop counts in full,
    as these may compute less than it takes.
    """
    hidden = {
        Ahead.ITERATION: Hidden((1 + (turns - 1) * ahead) / turns),
        Ahead.LOOP: Hidden(ahead, if_summed=True),
    }
    return {name: hidden[reading] for name, reading in gathers_ahead(graph, turns).items()}


def values_in_turns(graph: Graph, exposed: float) -> Mapping[str, Hidden]:
    """By name of a value of a body that runs in turns with others: while it travels there or back, these compute."""
    stored = [*(weight.value for weight in graph.weights), *(buffer.value for buffer in graph.buffers)]
    weights = {value.name for value in stored}
    names = (value.name for step in graph.steps for value in (*step.reads, *step.makes))
    return dict.fromkeys((name for name in names if name not in weights), Hidden(exposed, in_turns=True))
