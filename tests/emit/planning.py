"""Plans by rule instead of by search: everything whole, or the batch divided and the weights whole."""

from __future__ import annotations

from collections.abc import Mapping

from unity_dsl.graph.graph import Graph, Model, Node, Segment, Value
from unity_dsl.graph.layout import Invariant, Layout, Mesh, MeshAxis, Partial, Shard, invariant, nest
from unity_dsl.graph.layout_typing import TypedOperator
from unity_dsl.graph.plan import (
    Border,
    Cost,
    Materialised,
    Memory,
    Plan,
    PlannedGraph,
    PlannedNode,
    PlannedSegment,
    PlannedValue,
    Run,
)
from unity_dsl.graph.typed_configurations import configurations
from unity_dsl.index.library import Library
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.sharding_theorems import ShardingTheorems

Layouts = dict[str, tuple[Value, Layout]]


def mesh_of(*degrees: int) -> Mesh:
    return Mesh(tuple(MeshAxis("abcdef"[i], degree) for i, degree in enumerate(degrees)))


def batch_plan(model: Model, mesh: Mesh, library: Library) -> Plan:
    """A plan with Invariant weights that shards every value whose first dimension is the batch along this dimension."""
    wanted = {value.name: invariant(mesh) for value in model.whole}
    graph = _graph(model.graph, {}, wanted, mesh, library)
    cost = Cost(compute=2e-3, communication=1e-3, update=5e-4, memory=Memory(parameters=3 * 2.0**20))
    return Plan(model, mesh, "test bench", "by rule", graph, cost, conversions_on(mesh, library))


def conversions_on(mesh: Mesh, library: Library) -> ConversionModel:
    """The cheapest conversions between layouts of a mesh on the machine `local`."""
    return ConversionModel(mesh, load_machine("local"), library)


def _graph(graph: Graph, given: Layouts, wanted: Mapping[str, Layout], mesh: Mesh, library: Library) -> PlannedGraph:
    whole = invariant(mesh)
    produced: Layouts = dict(given)
    for stored in (*graph.inputs, *graph.weights, *graph.buffers):
        produced[stored.value.name] = (stored.value, whole)
    uses: dict[str, dict[Layout, None]] = {name: {layout: None} for name, layout in wanted.items()}
    steps: list[PlannedNode | PlannedSegment] = []
    for step in graph.steps:
        if isinstance(step, Segment):
            steps.append(_segment(step, produced, uses, mesh, library))
            continue
        typed = _choose(step, produced, mesh, library)
        for value, layout in zip(step.arguments, typed.arguments, strict=True):
            uses.setdefault(value.name, {})[layout] = None
        produced |= {v.name: (v, layout) for v, layout in zip(step.results, typed.results, strict=True)}
        steps.append(PlannedNode(step, typed))
    values = {
        name: PlannedValue(value, made, tuple(Materialised(u, made) for u in uses.get(name, {}) if u != made))
        for name, (value, made) in produced.items()
    }
    return PlannedGraph(graph, values, tuple(steps))


def _segment(
    segment: Segment, produced: Layouts, uses: dict[str, dict[Layout, None]], mesh: Mesh, library: Library
) -> PlannedSegment:
    entry = {value.name: (value, _batch(mesh)) for value in segment.entry}
    for value in segment.initial:
        uses.setdefault(value.name, {})[_batch(mesh)] = None
    captured = {value.name: produced[value.name] for value in segment.captured}
    wanted = {value.name: _batch(mesh) for value in segment.exit}
    body = _graph(segment.body, {**captured, **entry}, wanted, mesh, library)
    produced |= {value.name: (value, _batch(mesh)) for value in segment.results}
    border = Border(captured=tuple(layout for _, layout in captured.values()))
    return PlannedSegment(segment, (Run(0, segment.count, body),), border)


def _batch(mesh: Mesh) -> Layout:
    return nest([Shard(0)] * len(mesh.axes))


def _choose(node: Node, produced: Layouts, mesh: Mesh, library: Library) -> TypedOperator:
    """The configuration that follows the batch: sharded results (or partial sums), and as few other
    shards as it can.
    """
    gradients = node.gradients
    options = configurations(
        node.instance, mesh, library, gradients, [False] * len(gradients), ShardingTheorems(library)
    )
    whole, batch = invariant(mesh), _batch(mesh)

    def distance(typed: TypedOperator) -> tuple[int, int]:
        wrong = sum(
            layout not in (batch, whole) and any(isinstance(kind, Shard) for kind in layout.kinds)
            for layout in (*typed.arguments, *typed.results)
        )
        cut = all(layout == batch or layout.where(Partial) for layout in typed.results)
        moved = sum(
            isinstance(kind, Invariant) and isinstance(here, Shard)
            for value, layout in zip(node.arguments, typed.arguments, strict=True)
            for kind, here in zip(layout.kinds, produced[value.name][1].kinds, strict=True)
        )
        return wrong, 10 * (not cut) + moved + len(typed.inner)

    return min(options, key=distance)
