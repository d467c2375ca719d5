"""Prefetched weights: stored in slices and gathered while other operators compute, by where operators read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import groupby
from typing import TypeVar

from .graph import Graph, Node, Segment, Value
from .layout import Layout, Replicate
from .plan import PlannedNode, PlannedSegment


class Prefetch(Enum):
    """What a prefetch overlaps: the previous iteration of the same loop, or the last iteration of a loop before."""

    ITERATION = "iteration"
    LOOP = "loop"


def prefetched_gathers(graph: Graph, iterations: int) -> Mapping[str, Prefetch]:
    """The weights, by name, that are prefetched; the graph is run `iterations` times in a loop, or once.

    Each iteration of a loop, interleaved or not, prefetches the weights that operators read first in the next
    iteration. The last iteration prefetches the weights that are read first after the loop. A weight that several
    operators read is not prefetched.
    """
    reads = Counter(value.name for step in graph.steps for value in step.reads)
    trained = {stored.value.name for stored in graph.weights if stored.value.needs_gradient}
    alone = {name for name in trained if reads[name] == 1}
    found: dict[str, Prefetch] = {}
    entering = iterations > 1
    for operators, behind_loop in operator_stretches(graph.steps):
        weights = {value.name for step in operators for value in step.reads} & alone
        if weights and entering:
            found |= dict.fromkeys(weights, Prefetch.ITERATION)
            entering = False
        elif behind_loop:
            found |= dict.fromkeys(weights, Prefetch.LOOP)
    return found


Step = TypeVar("Step", Node | Segment, PlannedNode | PlannedSegment)


def operator_stretches(steps: Iterable[Step]) -> Iterator[tuple[list[Step], bool]]:
    """Sequences of operators without a body in between, and whether a loop comes right before each."""
    behind_loop = False
    for body, stretch in groupby(steps, lambda step: isinstance(step, Segment | PlannedSegment)):
        found = list(stretch)
        if not body:
            yield found, behind_loop
        last = found[-1]
        segment = last.segment if isinstance(last, PlannedSegment) else last
        behind_loop = isinstance(segment, Segment) and segment.is_loop


def sums_back(source: Layout, target: Layout) -> bool:
    """Whether the gradient of a conversion is summed over devices: the value becomes Replicate along a mesh axis."""
    ends = zip(source.kinds, target.kinds, strict=True)
    return any(isinstance(after, Replicate) and not isinstance(before, Replicate) for before, after in ends)


class PrefetchedGathers:
    """The prefetched weights of a model, including those of bodies."""

    def __init__(self, graph: Graph) -> None:
        self._found: dict[Value, Prefetch | None] = {}
        self._add(graph, 1)

    def _add(self, graph: Graph, iterations: int) -> None:
        ahead = prefetched_gathers(graph, iterations)
        for weight in graph.weights:
            found = ahead.get(weight.value.name)
            if self._found.setdefault(weight.value, found) is not found:
                self._found[weight.value] = None  # equal weights of several bodies that are not all prefetched alike
        for segment in graph.segments:
            self._add(segment.body, segment.iterations)

    def begins(self, value: Value, source: Layout, target: Layout) -> bool:
        """Whether the gather of a weight from its stored layout is prefetched; after a loop only if its gradient is
        summed.
        """
        found = self._found.get(value)
        return found is Prefetch.ITERATION or (found is Prefetch.LOOP and sums_back(source, target))
