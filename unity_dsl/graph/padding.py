"""Padded models: axes made longer, so that devices divide them, and operators that leave the padding out.

A padded tensor has the elements of the model in front and a tail behind them. The law: the front of a result depends on
nothing in a tail, so tails get no gradient. Weights are padded with zeros, which stay zeros. Before a softmax over the
axis, minus infinity is added to the tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

from ..index.equations.term import fresh
from ..index.instantiation.instantiate import Shape, instantiate
from ..index.library import Library
from ..written_figures import percent
from .graph import Buffer, Graph, Input, Model, Node, Segment, Series, Value, Weight
from .padded_operators import MASKED, PaddedOperator, Tails
from .padding_claims import PaddingClaim
from .shared_axes import Axis, SharedAxes, shared_axes

Padding = Mapping[str, int]
"""Padded sizes of dimensions, by path and number, `wte:0`. A dimension's first axis is padded wherever it occurs."""


@dataclass(frozen=True)
class PaddableAxis:
    """An axis of `size` positions, each of which is `unit` positions of the dimension at `place`."""

    place: str
    size: int
    unit: int

    @property
    def extent(self) -> int:
        """The number of positions of the dimension."""
        return self.size * self.unit


def paddable(model: Model) -> dict[str, PaddableAxis]:
    """The axes that can be padded, by the first dimension that begins with each."""
    shared = shared_axes(model)
    found: dict[Axis, PaddableAxis] = {}
    for path in shared.stored:
        for dim in range(len(shared.tensors[path])):
            leaves = shared.of_dimension(path, dim)
            if leaves:
                unit = prod(leaf.size for leaf in leaves[1:])
                found.setdefault(leaves[0], PaddableAxis(f"{path}:{dim}", leaves[0].size, unit))
    return {one.place: one for axis, one in found.items() if not axis.fixed}


def is_masked(node: Node) -> bool:
    """Whether an operator has masks that leave padding out."""
    return node.instance.name.endswith(MASKED)


def padded(model: Model, padding: Padding, library: Library) -> Model:
    """The model with axes of these padded sizes.

    Raises ValueError for an axis that must keep its size or cannot have this one.
    """
    if not padding:
        return model
    shared = shared_axes(model)
    sizes: dict[Axis, int] = {}
    for place, size in padding.items():
        axis, *others = shared.at(place)
        if axis.fixed:
            raise ValueError(f"{place} keeps its size: {axis.fixed}")
        sizes[axis], rest = divmod(size, prod(other.size for other in others))
        if rest or sizes[axis] < axis.size:
            raise ValueError(f"{place} cannot be padded to {size}")
    return replace(_Padder(shared, sizes, library).model(model), padding=dict(padding))


TOLD = 3
"""How many padded dimensions a line names."""


def padding_words(model: Model) -> str:
    """`wte:0 50,257 -> 50,304 (+0.09 %)` for the first padded dimensions; nothing where there are none."""
    own = {
        f"{path}:{dim}": size for path, value in _stored(model.graph, "") for dim, size in enumerate(value.model_shape)
    }
    told = [
        f"{place} {own[place]:,} -> {size:,} (+{percent(100 * (size / own[place] - 1))})"
        for place, size in model.padding.items()
        if place in own
    ]
    more = f" and {len(told) - TOLD} more" if len(told) > TOLD else ""
    return ", ".join(told[:TOLD]) + more


def _stored(graph: Graph, prefix: str) -> Iterator[tuple[str, Value]]:
    stored: tuple[Input | Weight | Buffer, ...] = (*graph.inputs, *graph.weights, *graph.buffers)
    yield from ((prefix + one.value.name, one.value) for one in stored)
    for segment in graph.segments:
        yield from _stored(segment.body, f"{prefix}{segment.name}.")


@dataclass
class _Padder:
    """Rebuilds a model at padded sizes."""

    shared: SharedAxes
    sizes: Mapping[Axis, int]
    library: Library
    names: set[str] = field(default_factory=set)
    lowered: dict[str, Value] = field(default_factory=dict)
    claims: dict[str, PaddingClaim] = field(default_factory=dict)

    def model(self, model: Model) -> Model:
        self.names = {path.rpartition(".")[2] for path in self.shared.tensors} | set(self.shared.tensors)
        graph, made = self.graph(model.graph, "", {})
        # The sum with the tail is returned, whose front is the same: then nothing else reads the operand.
        returned = [self.lowered.get(value.name, made[value.name][0]) for value in model.returned]
        changed = model.with_returned(graph, returned)
        return replace(changed, claims=tuple(dict.fromkeys(self.claims.values())))

    def long(self, leaves: Sequence[Axis]) -> int:
        return prod(self.sizes.get(leaf, leaf.size) for leaf in leaves)

    def value(self, value: Value, path: str) -> Value:
        dims = range(len(value.shape))
        shape = tuple(self.long(self.shared.of_dimension(path, dim)) for dim in dims)
        return value if shape == value.shape else replace(value, shape=shape, unpadded=value.shape)

    def graph(self, graph: Graph, prefix: str, outside: _Known) -> tuple[Graph, _Known]:
        known = dict(outside)

        def made(value: Value, tails: Tails) -> Value:
            known[value.name] = self.value(value, prefix + value.name), tails
            return known[value.name][0]

        every = dict.fromkeys(self.sizes, 0.0)
        inputs = tuple(replace(one, value=made(one.value, self.input_tails(prefix, one))) for one in graph.inputs)
        weights = tuple(replace(one, value=made(one.value, every)) for one in graph.weights)
        buffers = tuple(replace(one, value=made(one.value, {})) for one in graph.buffers)
        steps: list[Node | Segment] = []
        for step in graph.steps:
            if isinstance(step, Node):
                steps += self.node(step, prefix, known)
            else:
                steps.append(self.segment(step, prefix, known))
        updates = tuple(
            replace(one, buffer=known[one.buffer.name][0], value=known[one.value.name][0]) for one in graph.updates
        )
        return Graph(inputs, weights, buffers, tuple(steps), updates), known

    def input_tails(self, prefix: str, given: Input) -> Tails:
        """The tails of an input. It is padded with zeros, except along its first dimension, where the last row is
        repeated: a model may divide rows by their norm, which is 0 for a row of zeros.
        """
        first = self.shared.of_dimension(prefix + given.value.name, 0) if given.value.shape else ()
        return dict.fromkeys(self.sizes.keys() - set(first), 0.0)

    def node(self, node: Node, prefix: str, known: _Known) -> Iterator[Node]:
        """The operator at padded sizes, after the operators that add minus infinity to tails of its operands."""
        operator = PaddedOperator(node.instance, self.shared.operators[prefix + node.name], self.sizes, self.library)
        given = [known[value.name] for value in node.arguments]
        for place, name in operator.lowered([tails for _, tails in given]):
            *made, given[place] = self.without_tail(*given[place], place, name, operator)
            yield from made
            if not prefix:
                self.lowered[node.arguments[place].name] = given[place][0]
        instance, tails, claim = operator.padded([tails for _, tails in given])
        if claim is not None:
            self.claims[prefix + node.name] = claim
        results = []
        for value, one in zip(node.results, tails, strict=True):
            results.append(self.value(value, prefix + value.name))
            known[value.name] = results[-1], one
        arguments = tuple(value for value, _ in given)
        yield replace(node, instance=instance, arguments=arguments, results=tuple(results))

    def without_tail(
        self, value: Value, tails: Tails, place: int, name: str, operator: PaddedOperator
    ) -> tuple[Node, Node, tuple[Value, Tails]]:
        """The operator that makes 0 in front and minus infinity in the tail, its sum with a value, and that sum."""
        kept, size = operator.true[name], operator.sizes[name]
        attributes = {"size": size, "kept": kept}
        tail = replace(
            value,
            name=self.fresh("tail"),
            shape=(size,),
            unpadded=(kept,),
            needs_gradient=False,
            cast_from=None,
            is_weight=False,
        )
        made = instantiate(self.library.operators["tail"], [], attributes)
        first = Node(self.fresh(f"{tail.name}_1"), made, (), (tail,))
        summed = replace(value, name=self.fresh(f"{value.name}_without_tail"), cast_from=None, is_weight=False)
        added = instantiate(self.library.operators["add"], [Shape(value.shape), Shape((size,))], {})
        second = Node(self.fresh(f"{summed.name}_1"), added, (value, tail), (summed,))
        return first, second, (summed, {**tails, **dict.fromkeys(operator.of(name), -inf)})

    def fresh(self, name: str) -> str:
        found = fresh(name, self.names)
        self.names.add(found)
        return found

    def segment(self, segment: Segment, prefix: str, known: _Known) -> Segment:
        inside = f"{prefix}{segment.name}."

        def part(series: Series, given: Value) -> Series:
            return Series(given, self.value(series.part, inside + series.part.name), series.dim)

        sliced = tuple(part(series, known[series.whole.name][0]) for series in segment.sliced)
        entered: _Known = {value.name: known[value.name] for value in segment.captured}
        for series, made in zip(segment.sliced, sliced, strict=True):
            entered[series.part.name] = made.part, known[series.whole.name][1]
        initial = [known[value.name] for value in segment.initial]
        tails, names = [tails for _, tails in initial], set(self.names)
        while True:  # until an iteration leaves the tails that it was assumed to read
            self.names = set(names)
            for value, one in zip(segment.entry, tails, strict=True):
                entered[value.name] = self.value(value, inside + value.name), one
            body, left = self.graph(segment.body, inside, entered)
            kept = [_common(one, left[value.name][1]) for one, value in zip(tails, segment.exit, strict=True)]
            if kept == tails:
                break
            tails = kept
        for value, one in zip(segment.results, tails, strict=True):
            known[value.name] = self.value(value, prefix + value.name), one
        stacked = []
        for series in segment.stacked:
            whole = self.value(series.whole, prefix + series.whole.name)
            known[series.whole.name] = whole, left[series.part.name][1]
            stacked.append(part(series, whole))
        return replace(
            segment,
            body=body,
            initial=tuple(value for value, _ in initial),
            entry=tuple(entered[value.name][0] for value in segment.entry),
            exit=tuple(left[value.name][0] for value in segment.exit),
            results=tuple(known[value.name][0] for value in segment.results),
            captured=tuple(known[value.name][0] for value in segment.captured),
            sliced=sliced,
            stacked=tuple(stacked),
            predicate=None if segment.predicate is None else known[segment.predicate.name][0],
        )


_Known = dict[str, tuple[Value, Tails]]
"""Values by name, padded, each with its tails."""


def _common(first: Tails, second: Tails) -> Tails:
    return {axis: number for axis, number in first.items() if second.get(axis) == number}
