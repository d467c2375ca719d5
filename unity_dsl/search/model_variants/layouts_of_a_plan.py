"""Judges fusions by a plan: whether the fused operators cost less in its own layouts.

A fusion is accepted if nothing that it replaces is converted in between, and the new operators have a configuration in
the existing layouts. The plan with the fusion is then one of the same mesh, and costs less. Every place is decided
separately: a bias is added within `linear` where that is divided by columns, and after the sum over devices where it is
divided by rows. A fusion that costs more on one device, counting all that its statements build, is not accepted
anywhere. An operator without a native call takes as many kernels as those that it replaces, or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...graph.graph import Graph, Model, Node, Segment
from ...graph.layout import Layout
from ...graph.plan import Plan, PlannedGraph, PlannedNode, PlannedSegment
from ...machine.machine import Machine
from ..choices.operator_options import Options, OptionTable, price_node
from ..choices.restriction import stored_values
from .variant_enumeration import SingleDevice

if TYPE_CHECKING:
    from ...rules.graph_match import Match

GAIN = 1e-9
"""The fraction of the seconds by which a replacement must be cheaper."""


@dataclass(frozen=True)
class Layouts:
    """The layouts of a plan, in which fusions are judged. `options` are those of the plan's mesh."""

    plan: Plan
    options: OptionTable
    machine: Machine

    @cached_property
    def alone(self) -> SingleDevice:
        """Prices of operators on one device."""
        return SingleDevice(self.machine, self.options.library)

    def accept(self, match: Match, before: Model, after: Model) -> bool:
        """Whether the operators of a match can be replaced in place, in every iteration, at a lower cost."""
        old, new = _graph_at(before.graph, match.path), _graph_at(after.graph, match.path)
        left, right = ({step.name: step for step in graph.steps if isinstance(step, Node)} for graph in (old, new))
        gone = [node for name, node in left.items() if name not in right or right[name].rule != node.rule]
        made = [node for name, node in right.items() if name not in left or left[name].rule != node.rule]
        if sum(map(self.alone.operator, made)) >= (1 - GAIN) * sum(map(self.alone.operator, gone)):
            return False
        weights = self._stored(before.graph, match.path)
        saved = 0.0
        for count, body in _bodies_at(self.plan.graph, match.path):
            planned = [step for step in body.steps if isinstance(step, PlannedNode)]
            place = _Place.of([step for step in planned if step.node.name in {node.name for node in gone}])
            least = None if place is None else self._least(made, place, weights)
            if place is None or least is None:
                return False
            saved += count * (sum(map(self._seconds, place.nodes)) - least)
        return saved > 0

    def _least(self, made: Sequence[Node], place: _Place, weights: set[str]) -> float | None:
        """Seconds of the new operators in the layouts of a place; None where one has no configuration in them."""
        total = 0.0
        for node in made:
            options = self.options.of(node, tuple(value.name in weights for value in node.arguments))
            fits = [place.has(node, options, row) for row in range(len(options))]
            if not any(fits):
                return None
            total += float(np.min(options.seconds[np.array(fits)]))
        return total

    def _seconds(self, planned: PlannedNode) -> float:
        node, mesh = planned.node, self.plan.mesh
        return float(price_node(node, [planned.typed], mesh, self.machine, self.options.library)[0])

    def _stored(self, graph: Graph, path: Sequence[str]) -> set[str]:
        """The names of weights and buffers that a body can read."""
        around = (_graph_at(graph, path[:depth]) for depth in range(len(path) + 1))
        return {value.name for part in around for value in stored_values(part)}


@dataclass(frozen=True)
class _Place:
    """Operators of a plan without conversions between them, and the layouts that they read and make."""

    nodes: tuple[PlannedNode, ...]
    read: dict[str, set[Layout]]
    made: dict[str, Layout]

    @staticmethod
    def of(nodes: Sequence[PlannedNode]) -> _Place | None:
        """None where a tensor is converted between the operators."""
        read: dict[str, set[Layout]] = {}
        made: dict[str, Layout] = {}
        for planned in nodes:
            made |= {
                value.name: layout for value, layout in zip(planned.node.results, planned.typed.results, strict=True)
            }
        for planned in nodes:
            for value, layout in zip(planned.node.arguments, planned.typed.arguments, strict=True):
                if made.get(value.name, layout) != layout:
                    return None
                read.setdefault(value.name, set()).add(layout)
        return _Place(tuple(nodes), read, made)

    def has(self, node: Node, options: Options, row: int) -> bool:
        """Whether a configuration of a new operator has the layouts that are there; other tensors may have any."""
        typed = options.typed[row]
        reads = zip(node.arguments, typed.arguments, strict=True)
        makes = zip(node.results, typed.results, strict=True)
        return all(layout in self.read.get(value.name, {layout}) for value, layout in reads) and all(
            layout == self.made.get(value.name, layout) for value, layout in makes
        )


def _graph_at(graph: Graph, path: Sequence[str]) -> Graph:
    for name in path:
        graph = next(step.body for step in graph.steps if isinstance(step, Segment) and step.name == name)
    return graph


def _bodies_at(graph: PlannedGraph, path: Sequence[str]) -> Iterator[tuple[int, PlannedGraph]]:
    """The plans of a body, each with the number of iterations that have it."""
    if not path:
        yield 1, graph
        return
    segment = next(s for s in graph.steps if isinstance(s, PlannedSegment) and s.segment.name == path[0])
    for run in segment.runs:
        for count, body in _bodies_at(run.body, path[1:]):
            yield run.count * count, body
