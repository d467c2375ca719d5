"""Weights in slices whose gathers a program begins while others compute, by where operators read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from itertools import groupby

from .graph import Graph, Node, Segment, Value
from .layout import Layout, Replicate


class Ahead(Enum):
    """While what a gather runs: the iteration of the same loop before, or the last one of a loop before."""

    ITERATION = "iteration"
    LOOP = "loop"


def gathers_ahead(graph: Graph, turns: int) -> Mapping[str, Ahead]:
    """The weights, by name, whose gathers are begun ahead; the graph is run `turns` times in a loop, or once.

    While an iteration of a loop runs, in turns with others or not, the weights that operators read first in the next
    one are gathered, and in the last one those that are read first behind the loop. A weight that several operators
    read is not gathered ahead.
    """
    reads = Counter(value.name for step in graph.steps for value in step.reads)
    trained = {stored.value.name for stored in graph.weights if stored.value.needs_gradient}
    alone = {name for name in trained if reads[name] == 1}
    found: dict[str, Ahead] = {}
    entering, behind_loop = turns > 1, False
    for _, stretch in groupby(graph.steps, lambda step: isinstance(step, Node)):
        *_, last = steps = list(stretch)
        if isinstance(last, Segment):
            behind_loop = last.is_loop
            continue
        weights = {value.name for step in steps for value in step.reads} & alone
        if weights and entering:
            found |= dict.fromkeys(weights, Ahead.ITERATION)
            entering = False
        elif behind_loop:
            found |= dict.fromkeys(weights, Ahead.LOOP)
        behind_loop = False
    return found


def sums_back(source: Layout, target: Layout) -> bool:
    """Whether the cotangent of a conversion is summed over devices: along an axis it makes copies of one tensor."""
    ends = zip(source.kinds, target.kinds, strict=True)
    return any(isinstance(after, Replicate) and not isinstance(before, Replicate) for before, after in ends)


class GathersAhead:
    """Of a model the values, those of bodies too, whose gathers are begun ahead."""

    def __init__(self, graph: Graph) -> None:
        self._found: dict[Value, Ahead | None] = {}
        self._add(graph, 1)

    def _add(self, graph: Graph, turns: int) -> None:
        ahead = gathers_ahead(graph, turns)
        for weight in graph.weights:
            found = ahead.get(weight.value.name)
            if self._found.setdefault(weight.value, found) is not found:
                self._found[weight.value] = None  # bodies with a weight alike, of which one alone is gathered ahead
        for segment in graph.segments:
            self._add(segment.body, segment.turns)

    def begins(self, value: Value, source: Layout, target: Layout) -> bool:
        """Whether the gather of a weight from the layout in which it is stored is begun ahead: behind a loop only where
        its gradient is summed.
        """
        found = self._found.get(value)
        return found is Ahead.ITERATION or (found is Ahead.LOOP and sums_back(source, target))
