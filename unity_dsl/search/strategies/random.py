"""Strategy `random:N`: random operator configurations, weight storage, and chains of conversions.

This space is larger than the search space: a tensor may be held in any number of layouts, iterations of a repeat may
differ, and expensive plans are not excluded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from ...graph.declared_slices import bijective, is_cut
from ...graph.graph import Graph, Model, Node, Segment, Value
from ...graph.halo import is_halo_op
from ...graph.layout import PARTITION, Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, invariant, nest
from ...graph.layout_typing import Along, Linearly, TypedOperator, Uniformly
from ...graph.placed_operators import Placed
from ...graph.plan import Border, Materialised, PlannedGraph, PlannedNode, PlannedSegment, PlannedValue, Run
from ...graph.typed_configurations import Theorems, configurations
from ...index.library import Library
from ..choices.restriction import Restriction, node_path, stored_values
from ..layout_problem.variable_meaning import Impossible


def random(
    model: Model, mesh: Mesh, library: Library, rng: Random, theorems: Theorems, restriction: Restriction
) -> PlannedGraph:
    """A legal plan drawn by chance, for tests of programs; `random:7` draws the seventh.

    Rare combinations of roles are as likely as common ones. Raises Impossible if the restriction leaves an operator no
    configuration.
    """
    wanted = [(value, invariant(mesh)) for value in model.whole]
    return _Draw(mesh, library, rng, theorems, restriction).graph(model.graph, "", {}, frozenset(), wanted)


@dataclass
class _Values:
    """The values of one graph during a draw: the layout in which each is produced, and the layouts requested of it."""

    produced: dict[str, tuple[Value, Layout]] = field(default_factory=dict)
    wanted: dict[str, dict[Layout, None]] = field(default_factory=dict)

    def make(self, value: Value, layout: Layout) -> None:
        self.produced[value.name] = (value, layout)

    def want(self, value: Value, layout: Layout) -> None:
        self.wanted.setdefault(value.name, {})[layout] = None


class _Draw:
    def __init__(self, mesh: Mesh, library: Library, rng: Random, theorems: Theorems, restriction: Restriction) -> None:
        self.mesh, self.library, self.rng = mesh, library, rng
        self.theorems, self.restriction = theorems, restriction
        every = {name: declaration for name, declaration in library.parallels.items() if is_cut(declaration)}
        self.cuts = [name for name, declaration in every.items() if not is_halo_op(declaration)]
        self._options: dict[object, list[TypedOperator]] = {}

    def graph(
        self,
        graph: Graph,
        prefix: str,
        given: Mapping[str, tuple[Value, Layout]],
        weights: frozenset[str],
        wanted: Sequence[tuple[Value, Layout]],
    ) -> PlannedGraph:
        """A random plan of a graph. `given` are the values from outside with their layouts, `weights` the names of
        those that are stored.
        """
        values = _Values(produced=dict(given))
        for source in graph.inputs:
            values.make(source.value, invariant(self.mesh))
        for stored in stored_values(graph):
            pinned = self.restriction.storage.get(prefix + stored.name)
            values.make(stored, pinned or self.layout(stored, storage=True))
        weights |= {stored.name for stored in stored_values(graph)}
        steps = [
            self.segment(step, prefix, weights, values)
            if isinstance(step, Segment)
            else self.node(step, prefix, weights, values)
            for step in graph.steps
        ]
        for value, layout in wanted:
            values.want(value, layout)
        for update in graph.updates:
            values.want(update.value, values.produced[update.buffer.name][1])
        planned = {
            name: PlannedValue(value, layout, self.chain(layout, list(values.wanted.get(name, ()))))
            for name, (value, layout) in values.produced.items()
        }
        return PlannedGraph(graph, planned, tuple(steps))

    def node(self, node: Node, prefix: str, weights: frozenset[str], values: _Values) -> PlannedNode:
        groups: dict[frozenset[str], list[TypedOperator]] = {}
        for typed in self.options(node, prefix, weights):
            groups.setdefault(frozenset(role_names(typed)), []).append(typed)
        chosen = self.rng.choice(self.rng.choice(list(groups.values())))
        for value, layout in zip(node.arguments, chosen.arguments, strict=True):
            values.want(value, layout)
        for value, layout in zip(node.results, chosen.results, strict=True):
            values.make(value, layout)
        return PlannedNode(node, chosen)

    def options(self, node: Node, prefix: str, weights: frozenset[str]) -> list[TypedOperator]:
        """The configurations of an operator that produce the pinned layouts; computed once for equal operators."""
        stored = tuple(value.name in weights for value in node.arguments)
        key = (node.instance.identity, stored, node.gradients)
        if key not in self._options:
            found = configurations(node.instance, self.mesh, self.library, node.gradients, stored, self.theorems)
            self._options[key] = list(found)
        pins = [self.restriction.produced.get(prefix + value.name) for value in node.results]
        left = [
            typed
            for typed in self._options[key]
            if all(pin in (None, layout) for pin, layout in zip(pins, typed.results, strict=True))
        ]
        if not left:
            raise Impossible(node_path(prefix, node), node, None)
        return left

    def segment(self, segment: Segment, prefix: str, weights: frozenset[str], values: _Values) -> PlannedSegment:
        """A random plan of a repeat. Values cross the border of the body in any layout; carried values may have another
        layout after each run.
        """
        entries = self.carried(segment, prefix)
        border = self.border(segment, prefix, entries)
        for value, layout in (*zip(segment.initial, entries, strict=True), *border.reads(segment)):
            values.want(value, layout)
        crossing = {v.name: (v, layout) for v, layout in zip(segment.captured, border.captured, strict=True)}
        crossing |= {s.part.name: (s.part, layout) for s, layout in zip(segment.sliced, border.sliced, strict=True)}
        inner = f"{prefix}{segment.name}."
        runs = []
        for first, count in self.cut(segment.count):
            kept = count > 1 or segment.predicate is not None
            exits = entries if kept else self.carried(segment, prefix)
            given = {v.name: (v, layout) for v, layout in zip(segment.entry, entries, strict=True)}
            wanted = [*zip(segment.exit, exits, strict=True), *border.leaves(segment)]
            body = self.graph(segment.body, inner, {**crossing, **given}, weights & crossing.keys(), wanted)
            runs.append(Run(first, count, body))
            entries = exits
        for value, layout in zip(segment.results, entries, strict=True):
            values.make(value, layout)
        for series, layout in zip(segment.stacked, border.stacked, strict=True):
            values.make(series.whole, layout.inserted(series.dim))
        return PlannedSegment(segment, tuple(runs), border)

    def border(self, segment: Segment, prefix: str, entries: Sequence[Layout]) -> Border:
        pins, inner = self.restriction.produced, f"{prefix}{segment.name}."
        captured = tuple(map(self.layout, segment.captured))
        sliced = tuple(pins.get(inner + s.part.name) or self.layout(s.part) for s in segment.sliced)
        stacked = []
        for series in segment.stacked:
            pin = pins.get(prefix + series.whole.name)
            if pin is not None and pin.nesting(series.dim):
                raise Impossible(prefix + series.whole.name, None, None)
            stacked.append(self.layout(series.part) if pin is None else pin.removed(series.dim))
        if segment.predicate is None:
            return Border(captured, sliced, tuple(stacked))
        return Border(captured, sliced, tuple(stacked), tuple(entries), invariant(self.mesh))

    def carried(self, segment: Segment, prefix: str) -> list[Layout]:
        """A layout for every value that an iteration hands to the next; a pin of a result applies to all iterations."""
        pins = [self.restriction.produced.get(prefix + value.name) for value in segment.results]
        return [pin or self.layout(value) for pin, value in zip(pins, segment.entry, strict=True)]

    def cut(self, count: int) -> Iterator[tuple[int, int]]:
        """Consecutive runs, each as its first iteration and its number of iterations."""
        first = 0
        while first < count:
            size = self.rng.randint(1, count - first)
            yield first, size
            first += size

    def layout(self, value: Value, storage: bool = False) -> Layout:
        """A random layout for the value; a stored one is Invariant or Shard along every mesh axis."""
        kinds: list[Kind] = []
        left = list(value.shape)
        for axis in self.mesh.axes:
            choices: list[Kind] = [Invariant()]
            if value.integer_range is None and not storage:
                choices += [Replicate()] + [Partial()] * value.needs_gradient
            choices += [
                Shard(dim, by=by)
                for dim, size in enumerate(left)
                for by in ((PARTITION,) if storage else self.cuts)
                if bijective(self.library.parallels[by], axis.degree, size)
            ]
            kinds.append(self.rng.choice(choices))
            if isinstance(kind := kinds[-1], Shard):
                left[kind.dim] //= axis.degree
        return nest(kinds)

    def chain(self, produced: Layout, wanted: list[Layout]) -> tuple[Materialised, ...]:
        """A chain that makes each wanted layout from the produced one or from any earlier one."""
        self.rng.shuffle(wanted)
        made, chain = [produced], []
        for layout in wanted:
            if layout not in made:
                chain.append(Materialised(layout, self.rng.choice(made)))
                made.append(layout)
        return tuple(chain)


def role_names(typed: TypedOperator) -> Iterator[str]:
    """The role names of a configuration along each mesh axis, and whether two mesh axes divide one axis of the
    operator.
    """
    for role in typed.configuration:
        match role:
            case Uniformly(kind=kind):
                yield f"uniformly {kind}"
            case Linearly():
                yield "linearly"
            case Placed():
                yield "placed"
            case Along(axis=axis):
                results = {type(layout.kinds[typed.configuration.index(role)]) for layout in typed.results}
                yield "summed" if Partial in results else "inner" if typed.inner else "along"
                if len(typed.divided[axis]) > 1:
                    yield "merged"
