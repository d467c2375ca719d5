"""Dead code elimination and the last passes over a graph: captures, which values have gradients, random sites, float
types.

Everything follows from one relation: which value is computed from which, across repeats and their iterations. A carried
value's entry comes from its start and from its exit. The loss, the outputs and the new values of buffers are needed.
Gradients flow where the loss or an output is computed from a weight, but not to what only updates need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ..syntax.diagnostic import fail
from ..syntax.span import Span
from .graph import Graph, Model, Node, Segment, Series, Value
from .precision import with_precision


def finish(model: Model, loss_span: Span | None) -> Model:
    """The model without what it never uses, with every value marked and typed. Without a loss nothing has a gradient.

    Raises E222 (a loss that depends on no weight) or E224 (a stored tensor that nothing reads, or a weight that the
    loss does not depend on).
    """
    flow = _Flow()
    known: dict[str, int] = {}
    flow.add_graph(model.graph, known, "")
    reaches_loss = None if model.loss is None else flow.sources_of([known[model.loss.name]])
    gets_gradient = None if model.loss is None else flow.sources_of([known[model.loss.name]], flow.passing)
    returned = flow.sources_of([known[value.name] for value in model.returned])
    live = returned | flow.sources_of(flow.updated)
    _check_read(flow, live, live if reaches_loss is None else reaches_loss)
    _check_trained(flow, live if gets_gradient is None else gets_gradient)
    weights = [number for number, kind, _ in flow.stored if kind == "weight"]
    if reaches_loss is not None and reaches_loss.isdisjoint(weights):
        help = "declare a `weight` that it is computed from"
        raise fail("E222", "the loss depends on no weight: nothing can be trained", loss_span, help=help)
    trained = set() if reaches_loss is None else flow.trained() - _detached(flow, live, returned)
    marking = _Marking(flow, live, trained, count(1))
    graph, _ = marking.graph(model.graph, known, "")
    return with_precision(model.with_returned(graph, [marking.value(value, known) for value in model.returned]))


def _detached(flow: _Flow, live: set[int], returned: set[int]) -> set[int]:
    """The values that only updates need. An unneeded value is one of them if all that it is computed from are."""
    found = live - returned
    unread = (number for number in range(len(flow.values)) if number not in live and flow.sources[number])
    return found | {number for number in unread if found.issuperset(flow.sources[number])}


def _check_read(flow: _Flow, live: set[int], reaches_loss: set[int]) -> None:
    for number, kind, value in flow.stored:
        name = flow.names[number]
        if number not in live:
            help = "remove it, or use it in what the loss or an output is computed from"
            raise fail("E224", f"{kind} `{name}` is never read", value.span, help=help)
        if kind == "weight" and number not in reaches_loss:
            message = f"the loss does not depend on weight `{name}`: it would never be trained"
            raise fail("E224", message, value.span, help=f"`buffer {value.name}: …` is state that is not trained")


def _check_trained(flow: _Flow, gets_gradient: set[int]) -> None:
    for number, kind, value in flow.stored:
        if kind == "weight" and number not in gets_gradient:
            message = f"no gradient of the loss comes to weight `{flow.names[number]}`: it would never be trained"
            help = f"something stops it on every way; `buffer {value.name}: …` is state that is not trained"
            raise fail("E224", message, value.span, help=help)


# ---------------------------------------------------------------------------------------------- the relation


@dataclass
class _Flow:
    """Values by number, each with its `sources`: what it is computed from, and a predicate that decides whether it is.
    `passing` are the sources to which it passes its gradient back.

    Each graph has a dictionary of its own from names to numbers; `inside` keeps those of bodies, by their paths.
    `updated` are the buffers that are updated, and their new values.
    """

    values: list[Value] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)
    passing: list[list[int]] = field(default_factory=list)
    stored: list[tuple[int, str, Value]] = field(default_factory=list)
    inside: dict[str, dict[str, int]] = field(default_factory=dict)
    updated: list[int] = field(default_factory=list)

    def add(self, value: Value, prefix: str, sources: Iterable[int], stopped: Collection[int] = ()) -> int:
        self.values.append(value)
        self.names.append(prefix + value.name)
        self.sources.append(list(sources))
        self.passing.append([number for place, number in enumerate(self.sources[-1]) if place not in stopped])
        return len(self.values) - 1

    def add_graph(self, graph: Graph, known: dict[str, int], prefix: str) -> None:
        for kind, stored in (("input", graph.inputs), ("weight", graph.weights), ("buffer", graph.buffers)):
            for item in stored:
                known[item.value.name] = self.add(item.value, prefix, ())
                self.stored.append((known[item.value.name], kind, item.value))
        for step in graph.steps:
            if isinstance(step, Segment):
                self.add_segment(step, known, prefix)
            else:
                sources = [known[value.name] for value in step.arguments]
                for value in step.results:
                    known[value.name] = self.add(value, prefix, sources, step.stopped)
        for update in graph.updates:
            self.updated += [known[update.buffer.name], known[update.value.name]]

    def add_segment(self, segment: Segment, known: dict[str, int], prefix: str) -> None:
        """Add a segment. A result keeps its carried value, start included, alive even if the body never reads it."""
        path = f"{prefix}{segment.name}."
        inside = self.inside[path] = dict(known)
        for value, initial in zip(segment.entry, segment.initial, strict=True):
            inside[value.name] = self.add(value, path, [known[initial.name]])
        for series in segment.sliced:
            inside[series.part.name] = self.add(series.part, path, [known[series.whole.name]])
        self.add_graph(segment.body, inside, path)
        decides = [] if segment.predicate is None else [known[segment.predicate.name]]
        for entry, exit, result in zip(segment.entry, segment.exit, segment.results, strict=True):
            if not decides:
                self.sources[inside[entry.name]].append(inside[exit.name])
                self.passing[inside[entry.name]].append(inside[exit.name])
            known[result.name] = self.add(result, prefix, [inside[exit.name], inside[entry.name], *decides])
        for series in segment.stacked:
            known[series.whole.name] = self.add(series.whole, prefix, [inside[series.part.name]])

    def sources_of(self, wanted: Iterable[int], sources: Sequence[Sequence[int]] | None = None) -> set[int]:
        """The values that these are computed from, themselves included; by default from all `sources`."""
        sources = self.sources if sources is None else sources
        found = set(wanted)
        pending = list(found)
        while pending:
            new = [number for number in sources[pending.pop()] if number not in found]
            found.update(new)
            pending += new
        return found

    def trained(self) -> set[int]:
        """The weights and what passes a gradient back to them. Integers pass none on."""
        readers: list[list[int]] = [[] for _ in self.values]
        for number, sources in enumerate(self.passing):
            for source in sources:
                readers[source].append(number)
        pending = [number for number, kind, _ in self.stored if kind == "weight"]
        found = set(pending)
        while pending:
            new = [n for n in readers[pending.pop()] if n not in found and self.values[n].dtype != "int"]
            found.update(new)
            pending += new
        return found


# ---------------------------------------------------------------------------------------------- the result


def _updates(step: Node | Segment) -> bool:
    """Whether a step updates buffers inside its body."""
    return isinstance(step, Segment) and (bool(step.body.updates) or any(map(_updates, step.body.steps)))


@dataclass(frozen=True)
class _Marking:
    """Rebuilds a graph from its live values, with `needs_gradient` set and random operators numbered from 1."""

    flow: _Flow
    live: set[int]
    trained: set[int]
    sites: Iterator[int]

    def value(self, value: Value, known: dict[str, int]) -> Value:
        trained = known[value.name] in self.trained
        return value if value.needs_gradient == trained else replace(value, needs_gradient=trained)

    def values(self, values: Iterable[Value], known: dict[str, int]) -> tuple[Value, ...]:
        return tuple(self.value(value, known) for value in values)

    def graph(self, graph: Graph, known: dict[str, int], prefix: str) -> tuple[Graph, dict[str, Value]]:
        """The graph, and every value that its steps read, in the order of reading."""

        def keep(value: Value) -> bool:
            return known[value.name] in self.live

        read: dict[str, Value] = {}
        steps: list[Node | Segment] = []
        for step in graph.steps:
            if not any(keep(value) for value in step.makes) and not _updates(step):
                continue
            step = self.segment(step, known, prefix) if isinstance(step, Segment) else self.node(step, known)
            steps.append(step)
            read |= {value.name: value for value in step.reads}
        updates = tuple(
            replace(update, buffer=self.value(update.buffer, known), value=self.value(update.value, known))
            for update in graph.updates
            if update.value.name != update.buffer.name
        )
        read |= {update.value.name: update.value for update in updates}
        marked = Graph(
            inputs=tuple(replace(i, value=self.value(i.value, known)) for i in graph.inputs if keep(i.value)),
            weights=tuple(replace(w, value=self.value(w.value, known)) for w in graph.weights if keep(w.value)),
            buffers=tuple(replace(b, value=self.value(b.value, known)) for b in graph.buffers if keep(b.value)),
            steps=tuple(steps),
            updates=updates,
        )
        return marked, read

    def node(self, node: Node, known: dict[str, int]) -> Node:
        """The operator, marked. All iterations of a repeat share a site: the iteration is part of the random number's
        key. A site that has a number keeps it.
        """
        arguments, results = self.values(node.arguments, known), self.values(node.results, known)
        site = (node.site or next(self.sites)) if node.instance.draws else 0
        if (arguments, results, site) == (node.arguments, node.results, node.site):
            return node
        return replace(node, arguments=arguments, results=results, site=site)

    def segment(self, segment: Segment, known: dict[str, int], prefix: str) -> Segment:
        """The segment with its live carried values and series. It captures what its body reads and does not make."""
        path = f"{prefix}{segment.name}."
        inside = self.flow.inside[path]
        slots = [slot for slot, entry in enumerate(segment.entry) if inside[entry.name] in self.live]
        body, read = self.graph(segment.body, inside, path)

        def series(every: Iterable[Series]) -> tuple[Series, ...]:
            return tuple(
                replace(one, whole=self.value(one.whole, known), part=self.value(one.part, inside))
                for one in every
                if inside[one.part.name] in self.live and known[one.whole.name] in self.live
            )

        return replace(
            segment,
            body=body,
            initial=self.values((segment.initial[slot] for slot in slots), known),
            entry=self.values((segment.entry[slot] for slot in slots), inside),
            exit=self.values((segment.exit[slot] for slot in slots), inside),
            results=self.values((segment.results[slot] for slot in slots), known),
            captured=tuple(value for name, value in read.items() if inside[name] == known.get(name)),
            sliced=series(segment.sliced),
            stacked=series(segment.stacked),
            predicate=None if segment.predicate is None else self.value(segment.predicate, known),
        )
