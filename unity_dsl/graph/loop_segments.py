"""Builds `repeat`, `scan` and `cond` as segments of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..index.instantiation.operand_shape import Binding
from ..syntax.ast import Assign, Collect, Cond, Expr, ModelStatement, Nested, Repeat, Scan, Slices
from ..syntax.diagnostic import Label, fail
from ..syntax.span import Span
from .blocks import assignments
from .expression import Draft, Keeper, Place, apply, find_operator, tensor
from .graph import Graph, Segment, Series, Value, type_text
from .model_parameters import LARGEST, fold, whole
from .name_scope import Names, Scope

MOST_ITERATIONS = 10_000
"""Most executions of a body by all repeats around it. Each is a module of the program, with tensors of its own."""

Run = Callable[[Place, ModelStatement], None]
"""Adds a statement to the graph of a place."""


def add_loop(place: Place, statement: Nested, run: Run) -> None:
    """Add the segment that a statement stands for. Outside names that its body rebinds are carried through it.

    Raises E205 (iterations), E206 (names), E216 (what is carried), E240 (slices) and E241 (the predicate).
    """
    match statement:
        case Repeat():
            _repeat(place, statement, run)
        case Scan():
            _scan(place, statement, run)
        case Cond():
            _cond(place, statement, run)


@dataclass
class _Body:
    """The graph of a body under construction. The names that it rebinds have the value `initial` before the segment and
    `entry` at the beginning of an iteration.
    """

    place: Place
    initial: dict[str, Value]
    entry: dict[str, Value]


def _open(place: Place, statement: Nested, keeper: Keeper | None, carried: Sequence[Assign], iterations: int) -> _Body:
    outer = place.scope
    initial = {
        target: value for assign in carried for target in assign.targets if (value := outer.find(target)) is not None
    }
    seen = {value.name for word, value in outer.visible().items() if word not in initial}
    draft = Draft(Names(place.program.written, seen), place.draft, keeper=keeper, iterations=iterations)
    scope = Scope(outer.numbers, outer.declared, parent=outer, block=outer.block, statements=statement.body)
    entry = {word: replace(value, name=draft.names.after(word)) for word, value in initial.items()}
    scope.tensors |= entry
    return _Body(Place(place.program, draft, scope), initial, entry)


def _close(place: Place, statement: Nested, body: _Body, segment: Segment) -> None:
    """Add the segment, with its carried values, to the graph around it. All other names of the body are hidden."""
    outer, inner = place.scope, body.place.scope
    exits = {word: value for word, entry in body.entry.items() if (value := inner.tensors[word]).name != entry.name}
    for word, value in exits.items():
        _check_carried(word, statement, body.entry[word], value, body.initial[word])
    exits = _made_by_nodes(body.place, exits)
    results = {word: replace(value, name=place.draft.names.after(outer.prefix + word)) for word, value in exits.items()}
    outer.tensors |= results
    kind = _kind(statement)
    outer.hidden |= {word: (kind, value.span) for word, value in inner.tensors.items() if word not in body.entry}
    draft = body.place.draft
    place.draft.steps.append(
        replace(
            segment,
            body=draft.graph(),
            initial=tuple(body.initial[word] for word in exits),
            entry=tuple(body.entry[word] for word in exits),
            exit=tuple(exits.values()),
            results=tuple(results.values()),
            span=statement.span,
        )
    )


def _segment(name: str, count: int) -> Segment:
    """A segment of which only the name and the number of iterations are known yet."""
    return Segment(name, count, Graph((), (), (), ()), (), (), (), (), ())


# ---------------------------------------------------------------------------------------------- repeat, cond


def _repeat(place: Place, statement: Repeat, run: Run) -> None:
    count = whole(statement.count, place.scope.numbers, "the number of iterations")
    iterations = place.draft.iterations * count
    if iterations > MOST_ITERATIONS:
        message = f"`{statement.name}` is executed {iterations} times, {MOST_ITERATIONS} is the limit"
        help = "every iteration has weights and a module of its own; `scan` goes over positions"
        raise fail("E226", message, statement.count.span or statement.span, help=help)
    name = place.scope.prefix + statement.name
    place.draft.claim(name, statement.span)
    keeper = place.draft.keeper
    inside = None if keeper is None else replace(keeper, repeat=statement.name)
    body = _open(place, statement, inside, list(assignments(statement.body)), iterations)
    for inner in statement.body:
        run(body.place, inner)
    _close(place, statement, body, _segment(name, count))


def _cond(place: Place, statement: Cond, run: Run) -> None:
    predicate = tensor(place, statement.predicate)
    if predicate.elements != 1 or predicate.integer_range != 2:
        message = f"a cond is decided by one int<2>, this is {type_text(predicate)}"
        help = "one number for the whole batch; to choose per sample, compute both and combine them"
        raise fail("E241", message, statement.predicate.span, help=help)
    probability = 1.0 if statement.probability is None else float(fold(statement.probability, place.scope.numbers))
    if not 0 < probability <= 1:
        assert statement.probability is not None
        message = f"a body is executed with a probability above 0 and at most 1, not {probability:g}"
        raise fail("E241", message, statement.probability.span)
    name = place.scope.prefix + statement.name
    keeper = place.draft.keeper
    place.draft.claim(name, statement.span, shared=keeper is not None)
    inside = None if keeper is None else replace(keeper, prefix=f"{keeper.prefix}{name}.")
    body = _open(place, statement, inside, list(assignments(statement.body)), place.draft.iterations)
    for inner in statement.body:
        run(body.place, inner)
    segment = replace(_segment(name, 1), predicate=predicate, probability=probability)
    _close(place, statement, body, segment)


# ---------------------------------------------------------------------------------------------- scan


def _scan(place: Place, statement: Scan, run: Run) -> None:
    wholes = [(part, tensor(place, part.value)) for part in statement.slices]
    dims = [_dimension(place, part.dim, len(value.shape), part.span) for part, value in wholes]
    count = wholes[0][1].shape[dims[0]]
    for (part, value), dim in zip(wholes, dims, strict=True):
        if value.shape[dim] != count:
            first = wholes[0][0]
            message = f"`{part.name}` has {value.shape[dim]} positions and `{first.name}` {count}"
            raise fail("E240", message, part.span, notes=_note(first.span, "the first one is here"))
    name = place.scope.prefix + statement.name
    place.draft.claim(name, statement.span, shared=True)
    around = place.draft.keeper or Keeper(place.draft, "")
    keeper = replace(around, prefix=f"{around.prefix}{name}.")
    collects = [inner for inner in statement.body if isinstance(inner, Collect)]
    own = {id(inner.value) for inner in collects}
    carried = [assign for assign in assignments(statement.body) if id(assign.value) not in own]
    body = _open(place, statement, keeper, carried, place.draft.iterations)
    sliced = [
        Series(value, _slice(body.place, part, value, dim), dim)
        for (part, value), dim in zip(wholes, dims, strict=True)
    ]
    parts: dict[str, tuple[Collect, Value]] = {}
    for inner in statement.body:
        if isinstance(inner, Collect):
            _check_collected(place, body, inner, parts)
            parts[inner.name] = inner, tensor(body.place, inner.value)
        else:
            run(body.place, inner)
    made = {step_value.name for step in body.place.draft.steps for step_value in step.makes}
    stacked = []
    for word, (collect, value) in parts.items():
        made_part = value if value.name in made else _copy(body.place, f"{word}_part", value)
        dim = dims[0]
        if collect.dim is not None:
            dim = _dimension(body.place, collect.dim, len(value.shape) + 1, collect.span)
        elif dim > len(value.shape):
            rank = _count(len(value.shape) + 1, "dimension")
            message = f"`{word}` would be stacked along dimension {dim}, and has {rank}"
            raise fail("E240", message, collect.span, help=f"say which one: `collect … as {word} along 0`")
        shape = (*value.shape[:dim], count, *value.shape[dim:])
        if prod(shape) > LARGEST // 8:
            raise fail("E225", f"`{word}` has {prod(shape)} elements, which no memory holds", collect.span)
        whole_name = place.draft.names.after(place.scope.prefix + word)
        stacked.append(Series(replace(value, name=whole_name, shape=shape, span=collect.span), made_part, dim))
    segment = replace(_segment(name, count), sliced=tuple(sliced), stacked=tuple(stacked))
    _close(place, statement, body, segment)
    place.scope.tensors |= {word: series.whole for word, series in zip(parts, stacked, strict=True)}


def _slice(place: Place, part: Slices, value: Value, dim: int) -> Value:
    """The slice of one iteration, under its name in the body."""
    shape = (*value.shape[:dim], *value.shape[dim + 1 :])
    found = replace(value, name=place.draft.names.after(part.name), shape=shape, span=part.span)
    place.scope.declare(part.name, found, part.span)
    return found


def _check_collected(place: Place, body: _Body, collect: Collect, others: Mapping[str, object]) -> None:
    """Raises E206 if the name is taken by a carried value, a slice or another collected value."""
    place.scope.check_free(collect.name, collect.span)
    if collect.name in others or collect.name in body.entry:
        what = "collected twice" if collect.name in others else "carried from iteration to iteration"
        help = "collect under another name"
        raise fail("E206", f"`{collect.name}` is {what}", collect.span, help=help)


def _dimension(place: Place, expr: Expr, rank: int, span: Span | None) -> int:
    """A dimension, from 0; a negative one counts from the end. Raises E240."""
    dim = fold(expr, place.scope.numbers)
    if dim != int(dim) or not -rank <= dim < rank:
        raise fail("E240", f"{dim:g} is not one of {_count(rank, 'dimension')}", expr.span or span)
    return int(dim) % rank


# ---------------------------------------------------------------------------------------------- what is carried


def _check_carried(word: str, statement: Nested, entry: Value, exit: Value, initial: Value) -> None:
    """Raises E216 if an iteration leaves a carried value of another type than it takes."""
    if type_text(entry) != type_text(exit):
        kind = _kind(statement)
        notes = _note(initial.span, f"`{word}` is {type_text(entry)} before the {kind}")
        message = f"`{word}` is carried through the {kind} but changes from {type_text(entry)} to {type_text(exit)}"
        after = "after it" if kind == "cond" else "after an iteration"
        raise fail("E216", message, exit.span, label=f"{type_text(exit)} {after}", notes=notes)


def _kind(statement: Nested) -> str:
    """The word that a statement begins with."""
    return type(statement).__name__.lower()


def _made_by_nodes(body: Place, exits: Mapping[str, Value]) -> dict[str, Value]:
    """The exits, each made in the body: a value that comes from elsewhere or leaves under two names is copied."""
    made = {value.name for step in body.draft.steps for value in step.makes}
    found: dict[str, Value] = {}
    for word, value in exits.items():
        if value.name in made:
            made.remove(value.name)
            found[word] = value
        else:
            found[word] = _copy(body, word, value)
    return found


def _copy(body: Place, word: str, value: Value) -> Value:
    axes = tuple(((f"d{dim}", size),) for dim, size in enumerate(value.shape))
    operator = find_operator(body, "rearrange", value.span)
    return apply(body, operator, (value,), {}, value.span, (word,), Binding(axes, axes))[0]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _note(span: Span | None, text: str) -> tuple[Label, ...]:
    return () if span is None else (Label(span, text),)
