"""What a finished graph still needs: dead code dropped, captures found, gradients marked, random sites numbered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count

from ..index.term import walk
from ..syntax.ast import Uniform
from ..syntax.diagnostic import fail
from ..syntax.span import Span
from .graph import Graph, Model, Node, Segment, Value

Values = Mapping[str, Value]


def finish(model: Model, loss_span: Span | None) -> Model:
    """The model without what it never uses, every value marked.

    Raises E222 (a loss that depends on no weight) or E224 (a stored tensor that nothing reads, or a weight that the
    loss does not depend on).
    """
    trained, _ = _prune(model.graph, {model.loss.name: model.loss})
    kept, _ = _prune(model.graph, {value.name: value for value in (model.loss, *model.outputs)})
    _check_read(model.graph, kept, trained)
    if not any(_has_weights(trained)):
        help = "declare a `weight` that it is computed from"
        raise fail("E222", "the loss depends on no weight: nothing can be trained", loss_span, help=help)
    known: dict[str, Value] = {}
    graph = _mark(_number_sites(kept, count(1)), known)
    return replace(
        model,
        graph=graph,
        loss=known[model.loss.name],
        outputs=tuple(known[value.name] for value in model.outputs),
    )


# ---------------------------------------------------------------------------------------------- liveness


def _prune(graph: Graph, wanted: Values) -> tuple[Graph, Values]:
    """The part of a graph that `wanted` needs, and every value that this part reads, wherever it is made."""
    read = dict(wanted)
    steps: list[Node | Segment] = []
    for step in reversed(graph.steps):
        if not any(result.name in read for result in step.results):
            continue
        if isinstance(step, Segment):
            step = _prune_segment(step, read)
            read |= {value.name: value for value in (*step.initial, *step.captured)}
        else:
            read |= {value.name: value for value in step.arguments}
        steps.append(step)
    kept = Graph(
        inputs=tuple(stored for stored in graph.inputs if stored.value.name in read),
        weights=tuple(stored for stored in graph.weights if stored.value.name in read),
        buffers=tuple(stored for stored in graph.buffers if stored.value.name in read),
        steps=tuple(reversed(steps)),
    )
    return kept, read


def _prune_segment(segment: Segment, wanted: Values) -> Segment:
    """Carried values are needed for a result, or for another carried value that is needed: the least such set."""
    slots = {slot for slot, result in enumerate(segment.results) if result.name in wanted}
    while True:
        body, read = _prune(segment.body, {segment.exit[slot].name: segment.exit[slot] for slot in slots})
        needed = slots | {slot for slot, entry in enumerate(segment.entry) if entry.name in read}
        if needed == slots:
            break
        slots = needed
    order = sorted(slots)
    own = {value.name for value in _made(body)} | {segment.entry[slot].name for slot in order}
    return replace(
        segment,
        body=body,
        initial=tuple(segment.initial[slot] for slot in order),
        entry=tuple(segment.entry[slot] for slot in order),
        exit=tuple(segment.exit[slot] for slot in order),
        results=tuple(segment.results[slot] for slot in order),
        captured=tuple(value for name, value in read.items() if name not in own),
    )


def _made(graph: Graph) -> Iterator[Value]:
    """Every value that a graph stores or computes itself."""
    for stored in (*graph.inputs, *graph.weights, *graph.buffers):
        yield stored.value
    for step in graph.steps:
        yield from step.results


def _stored(graph: Graph, prefix: str = "") -> Iterator[tuple[str, str, Value]]:
    """(kind, full name, value) of every stored tensor; `layer.w` for all iterations of a repeat."""
    for kind, stored in (("input", graph.inputs), ("weight", graph.weights), ("buffer", graph.buffers)):
        for item in stored:
            yield kind, prefix + item.value.name, item.value
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from _stored(step.body, f"{prefix}{step.name}.")


def _check_read(graph: Graph, kept: Graph, trained: Graph) -> None:
    read = {name for _, name, _ in _stored(kept)}
    reaches_loss = {name for _, name, _ in _stored(trained)}
    for kind, name, value in _stored(graph):
        if name not in read:
            help = "remove it, or use it in what the loss or an output is computed from"
            raise fail("E224", f"{kind} `{name}` is never read", value.span, help=help)
        if kind == "weight" and name not in reaches_loss:
            message = f"the loss does not depend on weight `{name}`: it would never be trained"
            raise fail("E224", message, value.span, help=f"`buffer {value.name}: …` is state that is not trained")


def _has_weights(graph: Graph) -> Iterator[bool]:
    return (kind == "weight" for kind, _, _ in _stored(graph))


# ---------------------------------------------------------------------------------------------- random sites


def _number_sites(graph: Graph, numbers: Iterator[int]) -> Graph:
    """Number the operators that draw random numbers, from 1. A repeat's body has one number for all iterations."""
    steps: list[Node | Segment] = []
    for step in graph.steps:
        if isinstance(step, Segment):
            steps.append(replace(step, body=_number_sites(step.body, numbers)))
        else:
            steps.append(replace(step, site=next(numbers)) if _is_random(step) else step)
    return replace(graph, steps=tuple(steps))


def _is_random(node: Node) -> bool:
    return any(isinstance(term, Uniform) for equation in node.instance.equations for term in walk(equation.value))


# ---------------------------------------------------------------------------------------------- gradients


def _mark(graph: Graph, known: dict[str, Value]) -> Graph:
    """Set `needs_gradient` everywhere. `known` holds the marked values from outside and gets those of the graph."""

    def mark(value: Value, needs: bool) -> Value:
        known[value.name] = replace(value, needs_gradient=needs and value.dtype != "int")
        return known[value.name]

    inputs = tuple(replace(stored, value=mark(stored.value, False)) for stored in graph.inputs)
    weights = tuple(replace(stored, value=mark(stored.value, True)) for stored in graph.weights)
    buffers = tuple(replace(stored, value=mark(stored.value, False)) for stored in graph.buffers)
    steps: list[Node | Segment] = []
    for step in graph.steps:
        if isinstance(step, Segment):
            step = _mark_segment(step, known)
            needs = [value.needs_gradient for value in step.entry]
            results = tuple(mark(value, need) for value, need in zip(step.results, needs, strict=True))
            steps.append(replace(step, results=results))
        else:
            arguments = _known(step.arguments, known)
            needed = any(value.needs_gradient for value in arguments)
            marked = tuple(mark(value, needed) for value in step.results)
            steps.append(replace(step, arguments=arguments, results=marked))
    return Graph(inputs, weights, buffers, tuple(steps))


def _mark_segment(segment: Segment, known: Values) -> Segment:
    """A carried value needs a gradient if it enters with one or any iteration gives it one: the least such marking."""
    initial = _known(segment.initial, known)
    captured = _known(segment.captured, known)
    entry = tuple(
        replace(value, needs_gradient=first.needs_gradient) for value, first in zip(segment.entry, initial, strict=True)
    )
    while True:
        inside = {value.name: value for value in (*captured, *entry)}
        body = _mark(segment.body, inside)
        exit = _known(segment.exit, inside)
        needs = [before.needs_gradient or after.needs_gradient for before, after in zip(entry, exit, strict=True)]
        if needs == [value.needs_gradient for value in entry]:
            return replace(segment, body=body, initial=initial, entry=entry, exit=exit, captured=captured)
        entry = tuple(replace(value, needs_gradient=need) for value, need in zip(entry, needs, strict=True))


def _known(values: Iterable[Value], known: Values) -> tuple[Value, ...]:
    return tuple(known[value.name] for value in values)
