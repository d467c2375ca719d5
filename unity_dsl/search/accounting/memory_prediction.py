"""Predicts what each device keeps at the end of a forward pass: parameters, gradients, optimizer state, activations.

Counted are parameters and buffers as they are stored, a gradient of every parameter, the two moments of AdamW, which is
the optimizer of the written train.py, and what the forward pass saves for backward. The last is every storage that a
run of the lowerings keeps (a view keeps its base), once for each iteration of a repeat. An iteration of a recomputed
body keeps what enters it. One such body is held as a whole while it is recomputed, with what variables hold; the
largest sum counts. Kernels are those of a GPU: a CPU keeps more of `F.rms_norm`, and of attention over values of
another length than the keys'. Not counted are what lives only while an operator runs, and buffers of collectives;
`memory_budget.py` counts these too. Outputs of a training step are held only where the backward pass needs them. A
model without a loss returns them whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...graph.graph import Model, Value
from ...graph.layout import PARTITION, Invariant, Layout, Mesh, Placement, Replicate, Shard, invariant
from ...graph.local_executions import execution_of
from ...graph.passes import first_iterations
from ...graph.placed_order import different_places
from ...graph.plan import Memory, PlannedGraph, PlannedNode, PlannedSegment, PlannedValue, Run, gathered_once
from ...graph.precision import arithmetic, operand_types
from ...graph.reused_operands import with_reused_operands
from ...index.library import Library
from ...index.lowering.execution import Execution
from ...index.lowering.local_tensor import Shape, Storage, contiguous
from ...machine.collective_price import local_fraction
from ...machine.operator_price import MOMENTS
from ..choices.restriction import stored_values
from .recomputation import steps_again

Place = tuple[str, Layout | str]
"""A value in a layout, or an operator and the number of a tensor that only it knows."""

Saved = dict[Place, float]
"""Bytes that are kept, by place."""


@dataclass(frozen=True)
class Base:
    """A tensor that is not a view of another one."""

    place: Place
    bytes: int


@dataclass(frozen=True)
class Made:
    """A tensor that an operator made: a view of a base, or the base itself."""

    base: Base
    strides: Shape


Held = dict[Place, Made]


@dataclass(frozen=True)
class Kept:
    """Bytes that a graph keeps until its backward pass: `inside` its repeats, and of its `own` values. While that pass
    recomputes an iteration, it holds at most `again` bytes more than at its start.
    """

    inside: float
    own: Saved
    again: float = 0.0

    @property
    def bytes(self) -> float:
        return self.inside + sum(self.own.values())


def predict_memory(
    model: Model,
    graph: PlannedGraph,
    mesh: Mesh,
    library: Library,
    *,
    regathered: Collection[str] = (),
    recomputed: Collection[str] = (),
    kept_iterations: Mapping[str, int] = {},
) -> Memory:
    """Bytes that each device holds at the end of the forward pass of a step that still has the gradients of the
    previous one. For a model without a loss, bytes at the end of a call. `regathered` are paths of weights that are
    not kept gathered. `recomputed` are paths of recomputed segments, whose last `kept_iterations` are not recomputed.
    """
    graph = with_reused_operands(graph, model, mesh, library, recomputed)
    found = []
    for place in different_places(graph, mesh):
        activations = Activations(mesh, library, regathered, recomputed, place, kept_iterations)
        kept = activations.of(graph, "", frozenset())
        if model.loss is None:
            kept.own.update({(value.name, invariant(mesh)): float(value.bytes) for value in model.outputs})
        found.append(replace(stored_memory(graph, mesh, place), activations=kept.bytes + kept.again))
    return max(found, key=lambda memory: memory.total)


def stored_memory(graph: PlannedGraph, mesh: Mesh, place: Mapping[int, int]) -> Memory:
    """Bytes of weights, buffers, gradients and moments on a device with these coordinates."""

    def held(name: str) -> float:
        planned = graph.values[name]
        if any(place[axis] != coordinate for axis, coordinate in planned.produced.placement):
            return 0.0
        return planned.value.stored_bytes * local_fraction(planned.produced, mesh)

    parameters = sum(held(weight.value.name) for weight in graph.graph.weights)
    buffers = sum(held(buffer.value.name) for buffer in graph.graph.buffers)
    trained = sum(held(weight.value.name) for weight in graph.graph.weights if weight.value.needs_gradient)
    total = Memory(parameters, buffers, trained, MOMENTS * trained)
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                total = total.plus(stored_memory(run.body, mesh, place), run.count)
    return total


@dataclass(frozen=True)
class KeptGathered:
    """A weight that an operator keeps gathered in a layout for the backward pass. `bytes` are those of all iterations
    on each device; the iterations are expected to be executed `times`.
    """

    path: str
    planned: PlannedValue
    layout: Layout
    times: float
    bytes: float


def kept_gathered(
    graph: PlannedGraph, mesh: Mesh, library: Library, prefix: str = "", count: int = 1, times: float = 1.0
) -> Iterator[KeptGathered]:
    """The weights that operators keep gathered, separately for each run of a repeat."""
    activations, gathered = Activations(mesh, library), gathered_once(graph)
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            kept = activations.node(step, graph, {})
            for value in step.node.arguments:
                layout = gathered.get(value.name)
                if layout is not None and (held := kept.get((value.name, layout.without_copies))) is not None:
                    yield KeptGathered(prefix + value.name, graph.values[value.name], layout, times, count * held)
        else:
            segment = step.segment
            for run in step.runs:
                inner, expected = f"{prefix}{segment.name}.", times * run.count * segment.probability
                yield from kept_gathered(run.body, mesh, library, inner, count * run.count, expected)


class Activations:
    """Walks a plan as a device does with the coordinates `place` along mesh axes, 0 where none is given."""

    def __init__(
        self,
        mesh: Mesh,
        library: Library,
        regathered: Collection[str] = (),
        recomputed: Collection[str] = (),
        place: Mapping[int, int] = {},
        kept_iterations: Mapping[str, int] = {},
    ) -> None:
        self.mesh, self.library, self.regathered = mesh, library, regathered
        self.recomputed, self.place, self.kept_iterations = recomputed, place, kept_iterations

    def of(self, graph: PlannedGraph, prefix: str, stored: frozenset[str]) -> Kept:
        """The bytes that a graph keeps. `stored` are names of parameters that are read as they are stored."""
        stored |= {value.name for value in stored_values(graph.graph) if not value.is_cast}
        freed = gathered_once(graph) if self.regathered else {}
        gone: set[Place] = {
            (name, layout.without_copies) for name, layout in freed.items() if prefix + name in self.regathered
        }
        kept: Saved = {}
        held: Held = {}
        inside = most = 0.0
        for step in graph.steps:
            found = (
                Kept(0.0, self.node(step, graph, held) if self.is_at(step.placement) else {})
                if isinstance(step, PlannedNode)
                else self.segment(step, prefix, stored)
            )
            inside += found.inside
            is_parameter = {key for key in found.own if key[0] in stored and self.is_whole(key, graph)}
            kept |= {key: count for key, count in found.own.items() if key not in gone and key not in is_parameter}
            if found.again:
                most = max(most, inside + sum(kept.values()) + found.again)
        return Kept(inside, kept, max(0.0, most - inside - sum(kept.values())))

    def segment(self, planned: PlannedSegment, prefix: str, stored: frozenset[str]) -> Kept:
        """Bytes kept inside, and values from outside that are kept. The next iteration enters with what the one before
        leaves.
        """
        segment = planned.segment
        path = prefix + segment.name
        outside = {value.name for value in segment.captured}
        borders = {0: [value.name for value in segment.initial], segment.count: [v.name for v in segment.results]}
        inside = most = 0.0
        shared: Saved = {}
        first_ones = first_iterations(path, segment.count, self.recomputed, self.kept_iterations)
        for run, is_run_again in (part for whole in planned.runs for part in whole.parts(first_ones)):
            walk = self.keeping_gathered() if is_run_again else self
            found = walk.of(run.body, f"{path}.", stored & outside)
            if is_run_again:
                found, captured = walk.recomputed_iteration(planned, run, found, stored & outside)
                shared |= captured
            more, own, again = found.inside, found.own, found.again
            last = run.first + run.count
            begin, end = (
                borders.get(place) or [f"{segment.name}.{place}.{n}" for n in range(len(segment.entry))]
                for place in (run.first, last)
            )
            for number, (entry, exit_) in enumerate(zip(segment.entry, segment.exit, strict=True)):
                for layout in {layout for name, layout in own if name in (entry.name, exit_.name)}:
                    entered, left = own.pop((entry.name, layout), 0.0), own.pop((exit_.name, layout), 0.0)
                    shared |= {(begin[number], layout): entered} if entered else {}
                    shared |= {(end[number], layout): left} if left else {}
                    inside += (run.count - 1) * max(entered, left)
            for series, layout in zip(segment.sliced, planned.border.sliced, strict=True):
                if count := own.pop((series.part.name, layout.without_copies), 0.0):
                    shared[series.whole.name, layout.inserted(series.dim).without_copies] = segment.count * count
            whole = {key for key in own if key[0] in outside and self.is_whole(key, run.body)}
            shared |= {key: own.pop(key) for key in whole}
            inside += run.count * (more + sum(own.values()))
            most = max(most, inside + again)
        return Kept(inside, shared, max(0.0, most - inside))

    def keeping_gathered(self) -> Activations:
        """The same walk for a body that is recomputed, with everything that is gathered for it."""
        return Activations(self.mesh, self.library, (), self.recomputed, self.place, self.kept_iterations)

    def recomputed_iteration(
        self, planned: PlannedSegment, run: Run, body: Kept, stored: frozenset[str]
    ) -> tuple[Kept, Saved]:
        """The bytes that an iteration keeps if it is recomputed, and those that all iterations capture. A recomputed
        iteration keeps what enters it, instead of `body`.
        """
        segment, border = planned.segment, planned.border
        carried = [(value, run.body.values[value.name].produced) for value in segment.entry]
        if segment.predicate is not None:
            carried = [*zip(segment.entry, border.carried, strict=True)]
        sliced = zip((series.part for series in segment.sliced), border.sliced, strict=True)
        captured = zip(segment.captured, border.captured, strict=True)
        entering, shared = self.places((*carried, *sliced)), self.places(captured)
        crossing = {value.name for value in (*segment.entry, *segment.exit)}
        named, most = self.run_again(run.body, stored)
        one = {**named, **body.own}
        others = [key for key in one if key[0] not in crossing and key not in entering and key not in shared]
        return Kept(0.0, entering, body.inside + sum(one[key] for key in others) + max(most, body.again)), shared

    def run_again(self, body: PlannedGraph, stored: frozenset[str]) -> tuple[Saved, float]:
        """Bytes that variables hold while a body is recomputed, and the most that one operator holds in addition."""
        stored |= {value.name for value in stored_values(body.graph) if not value.is_cast}
        held: Held = {}
        named: Saved = {}
        most = 0.0
        steps, _ = steps_again(body, self.mesh, self.library)
        for step in steps:
            if isinstance(step, PlannedNode) and self.is_at(step.placement):
                most = max(most, self.run(step, body, held, named))
        whole = {key for key in named if key[0] in stored and self.is_whole(key, body)}
        return {key: count for key, count in named.items() if key not in whole}, most

    def is_at(self, placement: Placement) -> bool:
        """Whether the device belongs to a placement."""
        return all(self.place.get(axis, 0) == coordinate for axis, coordinate in placement)

    def places(self, values: Iterable[tuple[Value, Layout]]) -> Saved:
        """The bytes of values in layouts."""
        return {
            (value.name, layout.without_copies): value.bytes * local_fraction(layout, self.mesh)
            for value, layout in values
        }

    @staticmethod
    def is_whole(key: tuple[str, Layout | str], graph: PlannedGraph) -> bool:
        """Whether a value is kept as it was made, without a conversion."""
        name, layout = key
        return graph.values[name].produced.without_copies == layout

    def node(self, planned: PlannedNode, graph: PlannedGraph, held: Held) -> Saved:
        """The bytes that an operator saves. Its results are added to `held`."""
        run, bases = self.executed(planned, graph, held)
        return {bases[storage].place: bases[storage].bytes for storage in run.saved}

    def run(self, planned: PlannedNode, graph: PlannedGraph, held: Held, named: Saved) -> float:
        """Bytes that an operator holds only while it runs. Bytes that variables hold are added to `named`."""
        run, bases = self.executed(planned, graph, held)
        known = {*run.named, *run.saved}
        over = planned.typed.reuse.over
        if over is not None:  # the result takes the operand's place
            named.pop((planned.node.arguments[over].name, planned.typed.arguments[over].without_copies), None)
        for number, storage in enumerate(known):
            base = bases.get(storage) or Base((f"{planned.node.name}=", str(number)), storage.bytes)
            named[base.place] = base.bytes
        return float(sum(storage.bytes for storage in run.built if storage not in known))

    def executed(self, planned: PlannedNode, graph: PlannedGraph, held: Held) -> tuple[Execution, dict[Storage, Base]]:
        """An operator's run, and the base of each storage of its tensors. Its results are added to `held`."""
        node, typed = planned.node, planned.typed
        dtype = arithmetic(node, planned.native, self.library)
        arguments, results = (
            [(value.name, layout.without_copies) for value, layout in zip(values, layouts, strict=True)]
            for values, layouts in ((node.arguments, typed.arguments), (node.results, typed.results))
        )
        given: list[Made | None] = []
        for number, (value, wanted) in enumerate(zip(node.arguments, operand_types(node, dtype), strict=True)):
            if value.dtype != wanted:
                name, layout = arguments[number]
                arguments[number] = f"{name}:{wanted}", layout
            given.append(self.slice_of(arguments[number], graph, held) if value.dtype == wanted else None)
        strides = tuple(None if made is None else made.strides for made in given)
        run = execution_of(planned, strides, self.mesh, self.library)
        bases: dict[Storage, Base] = {}
        for place, made, tensor in zip(arguments, given, run.inputs, strict=True):
            bases.setdefault(tensor.storage, Base(place, tensor.storage.bytes) if made is None else made.base)
        if dtype != node.dtype:
            results = [(f"{name}:{dtype}", layout) for name, layout in results]
        if typed.reuse.over is not None:
            bases[run.outputs[0].storage] = Base(results[0], run.outputs[0].storage.bytes)
        for place, tensor in zip(results, run.outputs, strict=True):
            base = bases.setdefault(tensor.storage, Base(place, tensor.storage.bytes))
            held[place] = Made(base, tensor.strides)
        for number, storage in enumerate(run.saved):
            bases.setdefault(storage, Base((f"{node.name}:", str(number)), storage.bytes))
        return run, bases

    def slice_of(self, place: Place, graph: PlannedGraph, held: Held) -> Made | None:
        """The tensor that an operator made, or a view of it if a conversion only slices it; None for a tensor of its
        own.
        """
        name, layout = place
        if place in held:
            return held[place]
        planned = graph.values[name]
        made = next((made for made in planned.materialised if made.layout.without_copies == layout), None)
        if made is None or not _is_slice(made.source, made.layout):
            return None
        source = (name, made.source.without_copies)
        found = self.slice_of(source, graph, held)
        if found is None:
            count = int(planned.value.bytes * local_fraction(made.source, self.mesh))
            shape = self.local_shape(planned.value, made.source)
            found = Made(Base(source, count), contiguous(shape))
        return found

    def local_shape(self, value: Value, layout: Layout) -> Shape:
        """The shape of each device's part of a value in a layout of slices."""
        degrees = [self.mesh.degree(layout.nesting(dim)) for dim in range(len(value.shape))]
        return tuple(size // degree for size, degree in zip(value.shape, degrees, strict=True))


def _is_slice(source: Layout, target: Layout) -> bool:
    """Whether each device's part is one block of what it holds: nothing is sent, and torch makes a view."""
    pairs = list(zip(source.kinds, target.kinds, strict=True))
    cut = [kind for kind, other in pairs if isinstance(kind, Invariant | Replicate) and isinstance(other, Shard)]
    alike = all(kind == other or isinstance(kind, Invariant | Replicate) for kind, other in pairs)
    shards = [other for _, other in pairs if isinstance(other, Shard)]
    nested = all(target.nesting(s.dim)[: len(source.nesting(s.dim))] == source.nesting(s.dim) for s in shards)
    return bool(cut) and alike and nested and all(shard.by == PARTITION for shard in shards)
