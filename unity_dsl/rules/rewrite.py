"""Applies a match: replaces the matched left side of a rule by its right side.

A replaced value keeps its name, so that readers, outputs and pins refer to its replacement. Values that are no longer
read are removed. A match that would change weights, inputs, outputs, the loss or random numbers is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..graph.dead_code import finish
from ..graph.graph import Buffer, Graph, Input, Model, Node, Segment, Update, Value, Weight
from ..syntax.diagnostic import InputError
from .graph_match import Match, graphs
from .right_side import Refused, RightSide, made_by


def rewrite(model: Model, match: Match) -> Model | str:
    """The model after the match, or why it cannot be applied."""
    try:
        changed = _Rewriting(model, match).run()
        finished = finish(changed, None if model.loss is None else model.loss.span)
    except Refused as reason:
        return str(reason)
    except InputError as error:
        return error.diagnostic.message
    if _sites(finished) != _sites(model):
        return "a random operator would be gone, and the numbers of others with it"
    return finished


def _sites(model: Model) -> list[int]:
    return sorted(node.site for node in model.graph.nodes() if node.site)


def all_names(model: Model) -> set[str]:
    """Every name of the model, those inside repeats included."""
    names: set[str] = set()
    for _, graph in graphs(model.graph):
        names |= _stored_names(graph)
        for step in graph.steps:
            names |= {step.name, *(value.name for value in step.makes)}
            if isinstance(step, Segment):
                given = (*step.entry, *step.captured, *(series.part for series in step.sliced))
                names |= {value.name for value in given}
    return names


def _stored_names(graph: Graph) -> set[str]:
    stored: tuple[Input | Weight | Buffer, ...] = (*graph.inputs, *graph.weights, *graph.buffers)
    return {item.value.name for item in stored}


class _Rewriting:
    """One match in one graph of a model."""

    def __init__(self, model: Model, match: Match) -> None:
        self.model = model
        self.match = match
        self.graph = dict(graphs(model.graph))[match.path]
        self.roots = {value.name for value in match.roots}

    def run(self) -> Model:
        """The model with unread values still in it. Raises Refused and InputError."""
        right = RightSide(self.match, made_by(self._reusable()), all_names(self.model))
        instead: dict[str, Value] = {}
        for root, expr in zip(self.match.roots, self.match.substitution.rule.right, strict=True):
            found = right.root(expr, root)
            if found.name != root.name:
                instead[root.name] = self._standing_in(root, found, right)
        instead = {name: _end(name, instead) for name in instead}
        instead = {name: value for name, value in instead.items() if value.name != name}
        gone = {*instead, *(value.name for node in right.made for value in node.results)}
        first = min(place for place, step in enumerate(self.graph.steps) if self._makes_root(step))
        before, after = self.graph.steps[:first], self.graph.steps[first:]
        rest = [left for step in after if (left := self._left_of(step, gone, right)) is not None]
        steps = ordered([reading(step, instead) for step in (*before, *right.made, *rest)])
        return self._placed(replace(self.graph, steps=steps, updates=updating(self.graph, instead)), instead)

    def _makes_root(self, step: Node | Segment) -> bool:
        return any(value.name in self.roots for value in step.makes)

    def _left_of(self, step: Node | Segment, gone: set[str], right: RightSide) -> Node | Segment | None:
        """The rest of a step; None if nothing is left. If an operator has several results, its replaced results get
        other names.
        """
        if not self._makes_root(step) or not isinstance(step, Node):
            return step
        if all(value.name in gone for value in step.results):
            return None
        results = tuple(
            replace(value, name=right.fresh(step.instance.name)) if value.name in gone else value
            for value in step.results
        )
        return replace(step, name=results[0].name, results=results)

    def _reusable(self) -> list[Node]:
        """Operators that the right side may reuse: those that the match does not replace."""
        rule = self.match.substitution.rule
        pairs = zip(self.match.roots, rule.left, rule.right, strict=True)
        gone = {root.name for root, left, right in pairs if left != right}
        return [
            s for s in self.graph.steps if isinstance(s, Node) and gone.isdisjoint(value.name for value in s.results)
        ]

    # ------------------------------------------------------------------------------------------ stand-ins

    def _standing_in(self, root: Value, found: Value, right: RightSide) -> Value:
        """The value to use in place of a root: the existing value, or a copy of it if the root's name must stay
        readable.
        """
        if self._can_stand_in(root, found):
            return found
        right.copy(found, root)
        return root

    def _can_stand_in(self, root: Value, found: Value) -> bool:
        own = {value.name for step in self.graph.steps for value in step.makes}
        segment = self._segment()
        leaves = {value.name for value in segment.leaves} if segment is not None else set()
        if not self.match.path:
            leaves |= {value.name for value in self.model.returned}
        if root.name in leaves and (found.name not in own or found.name in leaves):
            return False
        return found.name not in _inner_names(self.graph)

    def _segment(self) -> Segment | None:
        """The repeat whose body is changed; None at top level."""
        found: Segment | None = None
        graph = self.model.graph
        for name in self.match.path:
            found = next(step for step in graph.steps if isinstance(step, Segment) and step.name == name)
            graph = found.body
        return found

    # ------------------------------------------------------------------------------------------ putting back

    def _placed(self, changed: Graph, instead: Mapping[str, Value]) -> Model:
        if not self.match.path:
            return self.model.with_returned(changed, [instead.get(v.name, v) for v in self.model.returned])
        return replace(self.model, graph=_within(self.model.graph, self.match.path, changed, instead))


def _within(graph: Graph, path: Sequence[str], changed: Graph, instead: Mapping[str, Value]) -> Graph:
    """The graph with the body at a path replaced."""
    steps: list[Node | Segment] = []
    for step in graph.steps:
        if isinstance(step, Segment) and step.name == path[0]:
            if len(path) == 1:
                exits = tuple(instead.get(value.name, value) for value in step.exit)
                stacked = tuple(replace(s, part=instead.get(s.part.name, s.part)) for s in step.stacked)
                step = replace(step, body=changed, exit=exits, stacked=stacked)
            else:
                step = replace(step, body=_within(step.body, path[1:], changed, instead))
        steps.append(step)
    return replace(graph, steps=tuple(steps))


def _end(name: str, instead: Mapping[str, Value]) -> Value:
    """The final replacement of a value. Raises Refused for a cycle of replacements."""
    seen = {name}
    value = instead[name]
    while value.name in instead and instead[value.name].name != value.name:
        if value.name in seen:
            raise Refused("its results stand for each other")
        seen.add(value.name)
        value = instead[value.name]
    return value


def reading(step: Node | Segment, instead: Mapping[str, Value]) -> Node | Segment:
    """The step with the values that it reads replaced, also inside a repeat unless the name is shadowed there."""
    if not instead:
        return step
    if isinstance(step, Node):
        return replace(step, arguments=_renamed(step.arguments, instead))
    hidden = _own_names(step)
    inner = {name: value for name, value in instead.items() if name not in hidden}
    steps = tuple(reading(part, inner) for part in step.body.steps)
    return replace(
        step,
        body=replace(step.body, steps=steps, updates=updating(step.body, inner)),
        initial=_renamed(step.initial, instead),
        captured=_renamed(step.captured, instead),
        sliced=tuple(replace(s, whole=instead.get(s.whole.name, s.whole)) for s in step.sliced),
        predicate=None if step.predicate is None else instead.get(step.predicate.name, step.predicate),
    )


def updating(graph: Graph, instead: Mapping[str, Value]) -> tuple[Update, ...]:
    return tuple(replace(update, value=instead.get(update.value.name, update.value)) for update in graph.updates)


def _renamed(values: Iterable[Value], instead: Mapping[str, Value]) -> tuple[Value, ...]:
    return tuple(instead.get(value.name, value) for value in values)


def _own_names(segment: Segment) -> set[str]:
    """Names defined in a repeat's body, which shadow outer ones."""
    made = (value.name for step in segment.body.steps for value in step.makes)
    given = (*segment.entry, *(series.part for series in segment.sliced))
    return {*_stored_names(segment.body), *made, *(value.name for value in given)}


def _inner_names(graph: Graph) -> set[str]:
    """The names defined in the repeats of a graph, nested ones included."""
    segments = [step for step in graph.steps if isinstance(step, Segment)]
    return {name for segment in segments for name in _own_names(segment) | _inner_names(segment.body)}


def ordered(steps: Sequence[Node | Segment]) -> tuple[Node | Segment, ...]:
    """The steps in topological order, stable otherwise. Raises Refused for a cycle."""
    maker = {value.name: number for number, step in enumerate(steps) for value in step.makes}
    ordered: list[Node | Segment] = []
    state = [0] * len(steps)  # 1: being visited, 2: placed
    for start in range(len(steps)):
        pending = [start]
        while pending:
            number = pending[-1]
            if state[number] == 2:
                pending.pop()
                continue
            sources = [maker[value.name] for value in steps[number].reads if value.name in maker]
            missing = [source for source in sources if state[source] != 2]
            if not missing:
                ordered.append(steps[number])
                state[number] = 2
            elif state[number] == 1 or number in missing:
                raise Refused("a result would be computed from itself")
            else:
                state[number] = 1
                pending += missing
    return tuple(ordered)
