"""Random legal plans: any configuration of any operator, any storage of any weight, any chain of conversions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from unity_dsl.graph.conversion import convert
from unity_dsl.graph.cut import is_cut
from unity_dsl.graph.graph import Graph, Model, Node, Segment, Value
from unity_dsl.graph.holding import only_holds
from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, invariant, nest
from unity_dsl.graph.plan import (
    Border,
    Cost,
    Materialised,
    Plan,
    PlannedGraph,
    PlannedNode,
    PlannedSegment,
    PlannedValue,
    Run,
)
from unity_dsl.graph.typing import Along, Linearly, TypedOperator, Uniformly, configurations
from unity_dsl.index.library import Library
from unity_dsl.rules.theorems import ShardingTheorems


def random_plan(model: Model, mesh: Mesh, library: Library, rng: Random) -> Plan:
    """A plan drawn from all that are legal, the rare roles as often as the common ones."""
    wanted = [(value, invariant(mesh)) for value in (model.loss, *model.outputs)]
    graph = _Draw(mesh, library, rng).graph(model.graph, {}, frozenset(), wanted)
    return Plan(model, mesh, "fuzz", "random", graph, Cost())


@dataclass
class _Values:
    """Values of one graph as they are drawn: where each is produced, and what is asked of it."""

    produced: dict[str, tuple[Value, Layout]] = field(default_factory=dict)
    wanted: dict[str, dict[Layout, None]] = field(default_factory=dict)

    def make(self, value: Value, layout: Layout) -> None:
        self.produced[value.name] = (value, layout)

    def want(self, value: Value, layout: Layout) -> None:
        self.wanted.setdefault(value.name, {})[layout] = None


class _Draw:
    def __init__(self, mesh: Mesh, library: Library, rng: Random) -> None:
        self.mesh, self.library, self.rng = mesh, library, rng
        self.theorems = ShardingTheorems(library)
        every = {name: declaration for name, declaration in library.parallels.items() if is_cut(declaration)}
        self.cuts = [name for name, declaration in every.items() if not only_holds(declaration)]

    def graph(
        self,
        graph: Graph,
        given: Mapping[str, tuple[Value, Layout]],
        weights: frozenset[str],
        wanted: Sequence[tuple[Value, Layout]],
    ) -> PlannedGraph:
        """`given` are the values from outside with their layouts, `weights` those of them that are stored."""
        values = _Values(produced=dict(given))
        for source in graph.inputs:
            values.make(source.value, invariant(self.mesh))
        for stored in (*graph.weights, *graph.buffers):
            values.make(stored.value, self.layout(stored.value, storage=True))
        weights |= {stored.value.name for stored in (*graph.weights, *graph.buffers)}
        steps = [
            self.segment(step, weights, values) if isinstance(step, Segment) else self.node(step, weights, values)
            for step in graph.steps
        ]
        for value, layout in wanted:
            values.want(value, layout)
        planned = {
            name: PlannedValue(value, layout, self.chain(layout, list(values.wanted.get(name, ()))))
            for name, (value, layout) in values.produced.items()
        }
        return PlannedGraph(graph, planned, tuple(steps))

    def node(self, node: Node, weights: frozenset[str], values: _Values) -> PlannedNode:
        stored = [value.name in weights for value in node.arguments]
        gradients = [value.needs_gradient for value in node.arguments]
        groups: dict[frozenset[str], list[TypedOperator]] = {}
        for typed in configurations(node.instance, self.mesh, self.library, gradients, stored, self.theorems):
            groups.setdefault(frozenset(role_names(typed)), []).append(typed)
        chosen = self.rng.choice(self.rng.choice(list(groups.values())))
        for value, layout in zip(node.arguments, chosen.arguments, strict=True):
            values.want(value, layout)
        for value, layout in zip(node.results, chosen.results, strict=True):
            values.make(value, layout)
        return PlannedNode(node, chosen)

    def segment(self, segment: Segment, weights: frozenset[str], values: _Values) -> PlannedSegment:
        """What crosses the border of a body does so in any layout; what is carried, in another after each run."""
        entries = [self.layout(value) for value in segment.entry]
        border = self.border(segment, entries)
        for value, layout in (*zip(segment.initial, entries, strict=True), *border.reads(segment)):
            values.want(value, layout)
        crossing = {v.name: (v, layout) for v, layout in zip(segment.captured, border.captured, strict=True)}
        crossing |= {s.part.name: (s.part, layout) for s, layout in zip(segment.sliced, border.sliced, strict=True)}
        runs = []
        for first, count in self.cut(segment.count):
            kept = count > 1 or segment.predicate is not None
            exits = entries if kept else [self.layout(value) for value in segment.exit]
            given = {v.name: (v, layout) for v, layout in zip(segment.entry, entries, strict=True)}
            wanted = [*zip(segment.exit, exits, strict=True), *border.leaves(segment)]
            body = self.graph(segment.body, {**crossing, **given}, weights & crossing.keys(), wanted)
            runs.append(Run(first, count, body))
            entries = exits
        for value, layout in zip(segment.results, entries, strict=True):
            values.make(value, layout)
        for series, layout in zip(segment.stacked, border.stacked, strict=True):
            values.make(series.whole, layout.inserted(series.dim))
        return PlannedSegment(segment, tuple(runs), border)

    def border(self, segment: Segment, entries: Sequence[Layout]) -> Border:
        captured, sliced, stacked = (
            tuple(map(self.layout, values))
            for values in (segment.captured, [s.part for s in segment.sliced], [s.part for s in segment.stacked])
        )
        if segment.predicate is None:
            return Border(captured, sliced, stacked)
        return Border(captured, sliced, stacked, tuple(entries), invariant(self.mesh))

    def cut(self, count: int) -> Iterator[tuple[int, int]]:
        """Consecutive runs: first iteration and number of iterations."""
        first = 0
        while first < count:
            size = self.rng.randint(1, count - first)
            yield first, size
            first += size

    def layout(self, value: Value, storage: bool = False) -> Layout:
        """Any layout that the value can have; a stored one is Invariant or Shard along every mesh axis."""
        kinds: list[Kind] = []
        left = list(value.shape)
        for axis in self.mesh.axes:
            choices: list[Kind] = [Invariant()]
            if value.integer_range is None and not storage:
                choices += [Replicate()] + [Partial()] * value.needs_gradient
            choices += [
                Shard(dim, by=by)
                for dim, size in enumerate(left)
                if size % axis.degree == 0
                for by in (("partition",) if storage else self.cuts)
            ]
            kinds.append(self.rng.choice(choices))
            if isinstance(kind := kinds[-1], Shard):
                left[kind.dim] //= axis.degree
        return nest(kinds)

    def chain(self, produced: Layout, wanted: list[Layout]) -> tuple[Materialised, ...]:
        """Each wanted layout made from the produced one or from any made before it."""
        self.rng.shuffle(wanted)
        made, chain = [produced], []
        for layout in wanted:
            if layout not in made:
                chain.append(Materialised(layout, self.rng.choice(made)))
                made.append(layout)
        return tuple(chain)


# ---------------------------------------------------------------------------------------------- what a plan contains


def role_names(typed: TypedOperator) -> Iterator[str]:
    """What the configuration makes of each mesh axis, and whether two of them divide one axis of the operator."""
    for role in typed.configuration:
        match role:
            case Uniformly(kind=kind):
                yield f"uniformly {kind}"
            case Linearly():
                yield "linearly"
            case Along(axis=axis):
                results = {type(layout.kinds[typed.configuration.index(role)]) for layout in typed.results}
                yield "summed" if Partial in results else "inner" if typed.inner else "along"
                if len(typed.divided[axis]) > 1:
                    yield "merged"


def features(plan: Plan) -> Counter[str]:
    """How often each role and each kind of collective occurs in a plan, backward collectives included."""
    return _features(plan.graph, plan.mesh)


def _features(graph: PlannedGraph, mesh: Mesh) -> Counter[str]:
    found: Counter[str] = Counter()
    for planned in graph.values.values():
        for made in planned.materialised:
            conversion = convert(made.source, made.layout, mesh, planned.value.shape)
            found.update(f"forward {step.kind}" for step in conversion.forward)
            found.update(f"backward {step.kind}" for step in conversion.backward if planned.value.needs_gradient)
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            found["runs"] += len(step.runs)
            for run in step.runs:
                found += _features(run.body, mesh)
        else:
            found.update(set(role_names(step.typed)))
            found[f"operator {step.node.instance.name}"] += 1
    return found
