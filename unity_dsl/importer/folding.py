"""Folds equal layers into repeats: modules of one list that each do the same to the result of the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import groupby

from .operators import arrangement
from .statements import Imported, Statement
from .views import Value


@dataclass(frozen=True)
class Repeat:
    """Equal layers: `layers` has the statements of each. `carried` are values that the first layer reads; each comes
    with the position, among a layer's results, of the one that the next layer reads instead. `prefixes` are the
    modules' paths, `own` the weights and buffers that belong to each layer alone, in the same order.
    """

    layers: tuple[tuple[Statement, ...], ...]
    prefixes: tuple[tuple[str, ...], ...]
    carried: tuple[tuple[Value, int], ...]
    own: tuple[tuple[Value, ...], ...]

    @property
    def name(self) -> str:
        return self.prefixes[0][-2] if len(self.prefixes[0]) > 1 else "layers"

    @property
    def body(self) -> tuple[Statement, ...]:
        return self.layers[0]

    def results(self, layer: int) -> list[Value]:
        return results_of(self.layers[layer])


Item = Statement | Repeat


_Groups = Sequence[tuple[tuple[str, ...], tuple[Statement, ...]]]
"""Statements, with the path of the member of a list that they belong to."""


def folded(model: Imported) -> list[Item]:
    """The statements of a model, with runs of equal layers as repeats."""
    left: list[Item] = []
    users: dict[Value, set[tuple[str, ...]]] = {}
    for statement in model.statements:
        for value in weights_of((statement,)):
            users.setdefault(value, set()).add(layer_of(statement))
    groups = [(key, tuple(group)) for key, group in groupby(model.statements, layer_of)]
    calls = Counter(key for key, _ in groups)  # a module that is called several times shares its weights with itself
    private = {
        value for value, layers in users.items() if len(layers) == 1 and all(key and calls[key] == 1 for key in layers)
    }
    place = 0
    while place < len(groups):
        layers = _layers(groups, place)
        repeat = _longest(layers, model, private) if len(layers) > 1 else None
        if repeat is None:
            left += groups[place][1]
            place += 1
            continue
        left.append(repeat)
        taken = sum(map(len, repeat.layers))
        while taken:
            key, group = groups[place]
            rest, taken = group[taken:], taken - min(taken, len(group))
            groups[place] = key, rest
            place += not rest
    return left


def _layers(groups: _Groups, first: int) -> list[tuple[tuple[str, ...], tuple[Statement, ...]]]:
    """The modules of one list from a group on, each with the statements of the surrounding module that follow it: as
    many as follow the first one.
    """
    prefix, found = groups[first][0], list[tuple[tuple[str, ...], tuple[Statement, ...]]]()
    place, behind = first, None
    while prefix and place < len(groups) and groups[place][0][:-1] == prefix[:-1] and groups[place][0]:
        key, own = groups[place]
        between = groups[place + 1][1] if place + 1 < len(groups) and not groups[place + 1][0] else ()
        follows = place + 2 < len(groups) and groups[place + 2][0][:-1] == prefix[:-1] and bool(groups[place + 2][0])
        if behind is None:
            behind = len(between) if between and follows else 0
        if len(between) < behind:
            break
        found.append((key, own + between[:behind]))
        if behind and not (follows and len(between) == behind):
            break
        place += 2 if behind else 1
    return found


def results_of(statements: Sequence[Statement]) -> list[Value]:
    return [result for statement in statements for result in statement.results]


def layer_of(statement: Statement) -> tuple[str, ...]:
    """The path of the member of a list that a statement belongs to: `model.layers.3`; empty outside lists."""
    numbers = [place for place, part in enumerate(statement.path) if part.isdecimal()]
    return statement.path[: numbers[0] + 1] if numbers else ()


def _longest(layers: _Groups, model: Imported, private: Set[Value]) -> Repeat | None:
    """The longest repeat that begins with the first of these layers; None where the next one differs."""
    prefix, statements = layers[0]
    form, slots, mine = _canonical(statements, prefix, private)
    owned = [mine]
    every, carried = [statements], dict[int, int]()
    for key, group in layers[1:]:
        other, reads, mine = _canonical(group, key, private)
        if other != form or len(reads) != len(slots):
            break
        before = {result: place for place, result in enumerate(results_of(every[-1]))}
        changed = {number: before[own] for number, own in enumerate(reads) if own in before}
        same = all(own is slots[number] for number, own in enumerate(reads) if number not in changed)
        if not same or (len(every) > 1 and changed != carried) or not changed:
            break
        carried = changed
        every.append(group)
        owned.append(mine)
    while len(every) > 1 and not _is_closed(every, set(carried.values()), model):
        every.pop()
        owned.pop()
    if len(every) < 2:
        return None
    prefixes = tuple(key for key, _ in layers[: len(every)])
    passed = tuple((slots[number], result) for number, result in carried.items())
    return Repeat(tuple(every), prefixes, passed, tuple(map(tuple, owned)))


def _is_closed(layers: Sequence[tuple[Statement, ...]], left: set[int], model: Imported) -> bool:
    """Whether everything outside the layers reads only those of their results that the last layer leaves."""
    inside = {id(statement) for layer in layers for statement in layer}
    made = {result for layer in layers for result in results_of(layer)}
    allowed = {result for place, result in enumerate(results_of(layers[-1])) if place in left}
    read = {operand.value for s in model.statements if id(s) not in inside for operand in s.operands}
    read |= {view.value for _, view in model.outputs} | ({model.loss.value} if model.loss else set())
    return (read & made) <= allowed


def _canonical(
    statements: Sequence[Statement], prefix: tuple[str, ...], private: Set[Value]
) -> tuple[object, list[Value], list[Value]]:
    """The form that equal layers share, the values from outside in the order of their first reading, and the layer's
    own weights. Those are `private`: no other layer reads them.
    """
    local = {result: place for place, result in enumerate(results_of(statements))}
    slots: dict[Value, int] = {}
    mine: dict[Value, int] = {}
    own = ".".join(prefix) + "."

    def named(value: Value) -> object:
        if value in local:
            return "local", local[value]
        if value in private:
            place = mine.setdefault(value, len(mine))
            name = value.state.removeprefix(own) if value.state.startswith(own) else place
            return "own", name, value.shape, value.kind
        return "outside", slots.setdefault(value, len(slots)), value.shape

    form = [
        (
            statement.operator,
            tuple(statement.settings.items()),
            statement.path[len(prefix) :] if statement.path[: len(prefix)] == prefix else (),
            tuple((named(operand.value), arrangement(operand)) for operand in statement.operands),
            tuple(result.shape for result in statement.results),
        )
        for statement in statements
    ]
    return form, list(slots), list(mine)


def weights_of(items: Sequence[Statement]) -> Iterator[Value]:
    """The weights and buffers that statements read, each once, in order."""
    every = (operand.value for item in items for operand in item.operands)
    yield from dict.fromkeys(value for value in every if value.kind in ("weight", "buffer"))
