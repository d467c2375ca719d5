"""How much of the conversions of a graph's tensors nothing hides, by where the program begins them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import groupby

from ...graph.graph import Graph, Node, Segment
from ..choices.layout_space import Hidden


def gather_exposure(graph: Graph, turns: int, ahead: float) -> Mapping[str, Hidden]:
    """By name of a weight what hides its gathers: of those begun ahead the part `ahead` is exposed. Of what is left out
    nothing is hidden.

    While an iteration of a loop runs, the weights that operators read first in the next one are gathered, and in the
    last one those that are read first behind the loop and have sums of gradients. The graph is run `turns` times in a
    loop, or once. A weight that several operators read is not gathered ahead.
    """
    reads = Counter(value.name for step in graph.steps for value in step.reads)
    trained = {stored.value.name for stored in graph.weights if stored.value.needs_gradient}
    alone = {name for name in trained if reads[name] == 1}
    found: dict[str, Hidden] = {}
    entering, behind_loop = turns > 1, False
    for _, stretch in groupby(graph.steps, lambda step: isinstance(step, Node)):
        *_, last = steps = list(stretch)
        if isinstance(last, Segment):
            behind_loop = last.predicate is None and last.count > 1
            continue
        weights = {value.name for step in steps for value in step.reads} & alone
        if weights and entering:
            found |= dict.fromkeys(weights, Hidden((1 + (turns - 1) * ahead) / turns))
            entering = False
        elif behind_loop:
            found |= dict.fromkeys(weights, Hidden(ahead, if_summed=True))
        behind_loop = False
    return found


def values_in_turns(graph: Graph, exposed: float) -> Mapping[str, Hidden]:
    """By name of a value of a body that runs in turns with others: while it travels there or back, these compute."""
    stored = [*(weight.value for weight in graph.weights), *(buffer.value for buffer in graph.buffers)]
    weights = {value.name for value in stored}
    names = (value.name for step in graph.steps for value in (*step.reads, *step.makes))
    return dict.fromkeys((name for name in names if name not in weights), Hidden(exposed, in_turns=True))
