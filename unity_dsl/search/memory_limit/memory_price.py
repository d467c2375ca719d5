"""A price in seconds of each byte that a device holds: the Lagrange multiplier of the limit, in the cost network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf

import numpy as np

from ...graph.graph import Node, Value
from ...graph.layout import Mesh, Shard
from ...graph.plan import PlannedGraph, PlannedNode, gathered_once
from ...machine.collective_price import local_fraction
from ...machine.conversion_model import ConversionModel
from ...machine.machine import Machine
from ..accounting.plan_cost import conversion_seconds
from ..choices.layout_space import Space
from ..choices.operator_options import Options, float_types, price_configurations
from ..choices.restriction import node_path, stored_values
from ..cost_network.bucket_elimination import Table
from .held_bytes import HeldBytes


@dataclass(frozen=True)
class MemoryPrice:
    """Additions to the prices of choices: for bytes, and for recomputation.

    `tables` are shared by tensors of the same shape.
    """

    held: HeldBytes
    seconds_per_byte: float
    machine: Machine
    tables: dict[object, Table] = field(default_factory=dict)

    def of_operator(self, node: Node, prefix: str, options: Options, mesh: Mesh) -> Table:
        """Seconds by configuration. Shape [configurations]."""
        seconds = self.seconds_per_byte * self.held.of_options(node, prefix, options, mesh)
        if node_path(prefix, node) in self.held.kept.again:
            key = node.instance.identity, float_types(node), id(options)
            if key not in self.held.forward:
                library = self.held.library
                found = price_configurations(node, options.configurations, mesh, self.machine, library, backward=False)
                self.held.forward[key] = options, found
            seconds = seconds + self.held.forward[key][1]
        return seconds

    def of_stored(self, value: Value) -> float:
        """Seconds of each byte of a weight or buffer where it is stored."""
        return self.seconds_per_byte * (self.held.copies if value.needs_gradient else 1)

    def with_copies(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """Prices of conversions, with those of the copies that are saved. Shape [layouts, layouts]."""
        return self._with(seconds, value, prefix, space, alone=False)

    def with_gathers(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """The same for a weight that one operator reads: its gathered copy is kept or re-gathered, whichever is
        cheaper.
        """
        return self._with(seconds, value, prefix, space, alone=True)

    def _with(self, seconds: Table, value: Value, prefix: str, space: Space, *, alone: bool) -> Table:
        kept, path = self.held.kept, prefix + value.name
        if path in kept.converted:
            begun = self.machine.exposure.gathers if value.is_weight else 1.0
            key = value.shape, value.bytes, begun, id(seconds)
            if key not in self.held.forward:
                self.held.forward[key] = seconds, seconds + space.forward_seconds(value.bytes, begun=begun)
            return self.held.forward[key][1]
        return self._table(seconds, value, space, alone=alone) if path in kept.read else seconds

    def of_plan(self, graph: PlannedGraph, conversions: ConversionModel, prefix: str = "") -> float:
        """The addition to the seconds of a plan, which already include recomputation."""
        mesh, read = conversions.mesh, self.held.kept.read
        once, total = gathered_once(graph), 0.0
        for step in graph.steps:
            if isinstance(step, PlannedNode):
                total += self.seconds_per_byte * float(self.held.of_operator(step.node, prefix, [step.typed], mesh)[0])
                continue
            inner = f"{prefix}{step.segment.name}."
            times = step.segment.probability
            total += sum(times * run.count * self.of_plan(run.body, conversions, inner) for run in step.runs)
        for value in stored_values(graph.graph):
            stored = value.stored_bytes * local_fraction(graph.values[value.name].produced, mesh)
            total += self.of_stored(value) * stored
        alone = _read_alone(graph)
        for name, planned in graph.values.items():
            if prefix + name not in read:
                continue
            pairs = [(made.source, made.layout) for made in planned.materialised]
            for source, layout in pairs or [(planned.produced, planned.produced)] * (name in alone):
                space = Space(planned.value.shape, conversions, tuple(dict.fromkeys((source, layout))))
                count = float(self.held.of_copies(planned.value, space, alone=name in alone)[0, -1])
                again = conversion_seconds(planned, layout, conversions) if name in once else inf
                total += min(self.seconds_per_byte * count, again)
        return total

    def _table(self, seconds: Table, value: Value, space: Space, alone: bool) -> Table:
        key = value.shape, value.bytes, value.needs_gradient, value.is_cast, alone, id(seconds)
        if key not in self.tables:
            copies = self.seconds_per_byte * self.held.of_copies(value, space, alone=alone)
            if alone and value.needs_gradient:
                cut = np.array([len(layout.where(Shard)) for layout in space.layouts])
                again = np.where(cut[:, None] > cut[None, :], space.forward_seconds(value.bytes), np.inf)
                copies = np.minimum(copies, again)
            self.tables[key] = seconds + copies
        return self.tables[key]


def _read_alone(graph: PlannedGraph) -> set[str]:
    """The weights and buffers of a graph that one operator alone reads."""
    reads = Counter(value.name for step in graph.graph.steps for value in step.reads)
    of_nodes = {value.name for node in graph.steps if isinstance(node, PlannedNode) for value in node.node.arguments}
    return {value.name for value in stored_values(graph.graph) if reads[value.name] == 1 and value.name in of_nodes}
