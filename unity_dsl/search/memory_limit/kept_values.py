"""Which values of a model are saved for backward: those that a run on one device keeps.

A divided plan keeps the same values, in the layouts in which they are produced and read: what an operator saves depends
on its lowering, and hardly on how it is divided. One walk through the undivided model therefore says for every plan
whose layouts count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ...graph.graph import Graph, Node, Segment, Value
from ...graph.layout import Layout, Mesh
from ...graph.layout_typing import type_operator
from ...graph.local_executions import execution_of
from ...graph.plan import Border, PlannedGraph, PlannedNode, PlannedSegment, PlannedValue, Run
from ...index.library import Library
from ...index.lowering.execution import Execution
from ...index.lowering.local_tensor import Shape
from ..accounting.memory_prediction import Activations, Held
from ..accounting.recomputation import Steps, steps_again
from ..choices.restriction import node_path, stored_values

_WHOLE = Layout(())


@dataclass
class KeptValues:
    """Values that are saved for backward, by path. `made` are values whose own storage is kept, wherever they are
    produced. For values in `read`, a copy in another layout is kept as well, since an operator saves what it reads.
    `entering` are values that recomputed iterations leave to the next one, which keeps what enters it as it is, terms
    of a sum too. `strides` are those of each operator's operands, as views leave them. `given` are parts of inputs by
    operator and place: operators that save a kept input, or make views of it, have equal parts. `again` are operators
    that the backward pass recomputes, and `converted` the values that it converts again for them. `views` are views of
    other values.
    """

    made: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    entering: set[str] = field(default_factory=set)
    strides: dict[str, tuple[Shape | None, ...]] = field(default_factory=dict)
    given: dict[tuple[str, int], float] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    views: set[str] = field(default_factory=set)
    converted: set[str] = field(default_factory=set)


def kept_values(graph: Graph, library: Library, recomputed: Collection[str] = ()) -> KeptValues:
    """The values that a run of a whole model on one device keeps. Segments that are `recomputed` keep only what enters
    them.
    """
    kept = KeptValues()
    activations = Activations(Mesh(()), library, recomputed=recomputed)
    planned = _undivided(graph, library)
    _walk(planned, "", activations, kept)
    kept.given = _given(planned, activations, kept.made)
    return kept


def _given(planned: PlannedGraph, activations: Activations, made: Collection[str]) -> dict[tuple[str, int], float]:
    """The parts of inputs that each operator's operands have, for operators outside of repeats."""
    names = {source.value.name for source in planned.graph.inputs} & set(made)
    readers: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    for step in planned.steps:
        if isinstance(step, PlannedNode):
            run = execution_of(step, (None,) * len(step.node.arguments), activations.mesh, activations.library)
            seen = {*run.saved, *(tensor.storage for tensor in run.outputs)}
            for number, (value, tensor) in enumerate(zip(step.node.arguments, run.inputs, strict=True)):
                if value.name in names and tensor.storage in seen:
                    readers[value.name].append((step.node.name, number))
    return {reader: 1 / len(found) for found in readers.values() for reader in found}


def _walk(planned: PlannedGraph, prefix: str, activations: Activations, kept: KeptValues) -> set[str]:
    """Adds what a graph keeps. Returns the names of the values that are kept, its own or from outside."""
    held: Held = {}
    own: set[str] = set()
    runs: list[tuple[Node, Execution]] = []
    read: set[str] = set()
    for step in planned.steps:
        if isinstance(step, PlannedSegment):
            inside = _walk_body(step, prefix, activations, kept)
            outside = set(_crossing(step.segment, inside))
            read |= outside - {value.name for value in step.segment.initial}
            own |= {_base(name, held) for name in outside}
            left = {
                f"{prefix}{step.segment.name}.{exit_.name}"
                for entry, exit_ in zip(step.segment.entry, step.segment.exit, strict=True)
                if inside & {entry.name, exit_.name}
            }
            kept.made |= left
            if prefix + step.segment.name in activations.recomputed:
                kept.entering |= left
            continue
        node = step.node
        places = [(value.name, _WHOLE) for value in node.arguments]
        strides = tuple(held[place].strides if place in held else None for place in places)
        kept.strides[node_path(prefix, node)] = strides
        own |= {name for name, layout in activations.node(step, planned, held) if layout == _WHOLE}
        kept.views |= {prefix + value.name for value in node.results if _base(value.name, held) != value.name}
        runs.append((node, execution_of(step, strides, activations.mesh, activations.library)))
    for node, run in reversed(runs):
        viewed = {tensor.storage for value, tensor in zip(node.results, run.outputs, strict=True) if value.name in read}
        viewed |= set(run.saved)
        read |= {v.name for v, tensor in zip(node.arguments, run.inputs, strict=True) if tensor.storage in viewed}
    kept.made |= {prefix + name for name in own}
    kept.read |= {prefix + name for name in read}
    return own | read


def _walk_body(planned: PlannedSegment, prefix: str, activations: Activations, kept: KeptValues) -> set[str]:
    """The same for an iteration. One that is recomputed keeps nothing of its own."""
    segment, body, path = planned.segment, planned.runs[0].body, prefix + planned.segment.name
    if path not in activations.recomputed:
        return _walk(body, f"{path}.", activations, kept)
    inside = KeptValues()
    _walk(body, f"{path}.", activations, inside)
    kept.strides |= inside.strides
    steps, last = steps_again(body, activations.mesh, activations.library)
    _add_again(steps, last, f"{path}.", kept)
    entering = (*segment.captured, *segment.entry, *(series.part for series in segment.sliced))
    return {value.name for value in entering}


def _add_again(steps: Steps, last: PlannedNode | None, prefix: str, kept: KeptValues) -> None:
    """Adds what the backward pass recomputes: these steps, and conversions for them and for what the `last`
    one saves.
    """
    for step in (*steps, *(() if last is None else (last,))):
        read = step.node.arguments if isinstance(step, PlannedNode) else step.segment.reads
        kept.converted |= {prefix + value.name for value in read}
    for step in steps:
        if isinstance(step, PlannedNode):
            kept.again.add(node_path(prefix, step.node))
        else:
            _add_again(step.runs[0].body.steps, None, f"{prefix}{step.segment.name}.", kept)


def _base(name: str, held: Held) -> str:
    """The value that a value is a view of."""
    made = held.get((name, _WHOLE))
    return name if made is None else made.base.place[0]


def _crossing(segment: Segment, inside: set[str]) -> Iterator[str]:
    """The values from outside that a body keeps, given the names in it that are kept."""
    yield from (value.name for value in segment.captured if value.name in inside)
    yield from (series.whole.name for series in segment.sliced if series.part.name in inside)
    pairs = zip(segment.initial, segment.entry, strict=True)
    yield from (initial.name for initial, entry in pairs if entry.name in inside)


def _undivided(graph: Graph, library: Library) -> PlannedGraph:
    """The plan of a graph on one device."""
    values: dict[str, Value] = {value.name: value for value in stored_values(graph)}
    steps: list[PlannedNode | PlannedSegment] = []
    for step in graph.steps:
        values |= {value.name: value for value in (*step.reads, *step.makes)}
        if isinstance(step, Segment):
            steps.append(PlannedSegment(step, (Run(0, step.count, _undivided(step.body, library)),), Border()))
            continue
        typed = type_operator(step.instance, (), Mesh(()), library)
        assert not isinstance(typed, str), typed
        steps.append(PlannedNode(step, typed))
    planned: Mapping[str, PlannedValue] = {name: PlannedValue(value, _WHOLE) for name, value in values.items()}
    return PlannedGraph(graph, planned, tuple(steps))
