"""Splits weights: a product that is read in slices becomes one for each part of its weight, to be sharded alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from ..syntax.diagnostic import fail
from .statements import Imported, Statement, reading
from .views import Axis, Part, Unarranged, Value, View


@dataclass(frozen=True)
class Stored:
    """The place of a weight or buffer of the model in the module's state_dict: a tensor, or a part of one."""

    state: str
    part: Part | None = None


def of_states(states: Mapping[str, Tensor], weights: Mapping[str, Stored]) -> dict[str, Tensor]:
    """Tensors by the model's names, taken from a module's state_dict."""
    return {
        name: states[stored.state] if stored.part is None else stored.part.of(states[stored.state])
        for name, stored in weights.items()
    }


def to_states(tensors: Mapping[str, Tensor], weights: Mapping[str, Stored]) -> dict[str, Tensor]:
    """Tensors by names of the state_dict, with parts joined, from those by the model's names."""
    parts: dict[str, dict[Part, Tensor]] = {}
    found = {}
    for name, tensor in tensors.items():
        stored = weights[name]
        if stored.part is None:
            found[stored.state] = tensor
        else:
            parts.setdefault(stored.state, {})[stored.part] = tensor
    for state, some in parts.items():
        ordered = sorted(some, key=lambda part: part.start)
        found[state] = torch.cat([some[part] for part in ordered], ordered[0].dim)
    return found


def with_weight_parts(model: Imported) -> Imported:
    """The model in which a linear map that is only read in slices becomes one map for each slice. A weight that merges
    queries, keys and values, or gates and what they gate, could not be sharded like its readers.

    Raises E605 for a weight that is read whole in one place and in parts in another.
    """
    readers: dict[Value, list[Statement]] = {}
    for statement in model.statements:
        for operand in statement.operands:
            readers.setdefault(operand.value, []).append(statement)
    left = model.left
    maps: dict[Statement, Sequence[Statement]] = {}
    shown: dict[Value, View] = {}
    for statement in model.statements:
        divided = _divided(statement, readers, left)
        if divided is not None:
            maps[statement], views = divided
            maps |= dict.fromkeys(readers[statement.results[0]], ())
            shown |= views
    statements = reading((new for old in model.statements for new in maps.get(old, (old,))), shown)
    _check(statements)
    return replace(model, statements=statements)


def _check(statements: Sequence[Statement]) -> None:
    read = [operand.value for statement in statements for operand in statement.operands]
    parts = {value.state for value in read if value.part is not None}
    both = sorted(parts.intersection(value.state for value in read if value.part is None))
    if both:
        help = "give the experts a weight of their own"
        raise fail("E605", f"`{both[0]}` is read whole, and by experts in parts", help=help)


@dataclass(frozen=True)
class _Slice:
    """A slice of the rows that a linear map makes: its result, this result as a view of a value of these rows alone,
    and the range of rows.
    """

    result: Value
    view: View
    start: int
    stop: int


def _divided(
    statement: Statement, readers: Mapping[Value, Sequence[Statement]], left: set[Value]
) -> tuple[list[Statement], dict[Value, View]] | None:
    """The maps that replace a linear map, in the order of their rows, and the views that replace results of slices.
    None where it stays one map.
    """
    if statement.operator not in ("linear", "linear_bias"):
        return None
    made, (_, *weights) = statement.results[0], statement.operands
    own = all(view.value.kind == "weight" and len(readers[view.value]) == 1 for view in weights)
    own = own and left.isdisjoint((made, *(view.value for view in weights)))
    dims = [next((place for place, dim in enumerate(view.base) if dim == view.dims[0]), None) for view in weights]
    slices = list(_slices(made, readers.get(made, ())))
    if not own or None in dims or len(slices) < 2 or len(slices) != len(readers[made]):
        return None
    slices.sort(key=lambda one: one.start)
    ends = [one.stop for one in slices]
    if [one.start for one in slices] != [0, *ends[:-1]] or ends[-1] != made.shape[-1]:
        return None
    words = _words([one.result for one in slices], readers)
    found, views = list[Statement](), dict[Value, View]()
    for one, word in zip(slices, words, strict=True):
        places = zip(weights, dims, strict=True)
        parts = [_part(view, Part(place or 0, one.start, one.stop, word)) for view, place in places]
        if not one.view.is_whole:
            views[one.result] = one.view
        result = one.result if one.view.is_whole else one.view.value
        found.append(replace(statement, operands=(statement.operands[0], *parts), results=(result,)))
    try:
        reading((reader for value in views for reader in readers.get(value, ())), views)
    except Unarranged:
        return None
    return None if left & views.keys() else (found, views)


def _slices(made: Value, readers: Sequence[Statement]) -> Iterator[_Slice]:
    """The readers that slice rows along the first axis into which a view splits them."""
    for reader in readers:
        if reader.operator != "slice":
            continue
        (view,) = reader.operands
        rows, cut = view.base[-1], view.dims[int(reader.settings["dim"])]
        if rows and cut == rows[:1]:
            start, stop = (int(reader.settings[word]) for word in ("start", "stop"))
            inner = prod(axis.size for axis in rows[1:])
            own = Value((*made.shape[:-1], inner * (stop - start)))
            apart = view.split(rows[0], (Axis(stop - start),) if stop - start > 1 else ())
            yield _Slice(reader.results[0], View(own, apart.base, apart.dims), inner * start, inner * stop)


def _part(view: View, part: Part) -> View:
    """The view of a weight, restricted to some of its rows."""
    rows = (Axis(part.stop - part.start),)
    base = tuple(rows if place == part.dim else dim for place, dim in enumerate(view.base))
    return View(view.value.part_of(part), base, (rows, *view.dims[1:]))


_GATES = {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"}
_PRODUCTS = {"linear", "linear_bias", "matmul", "expert_linear"}


def _words(results: Sequence[Value], readers: Mapping[Value, Sequence[Statement]]) -> list[str]:
    """Names of parts: q, k and v, as attention reads them; gate and up; else numbers."""
    words = [_attended(result, readers) for result in results]
    if all(words) and len({*words}) == len(words):
        return words
    gates = [{reader.operator for reader in readers.get(result, ())} <= _GATES for result in results]
    if len(results) == 2 and sum(gates) == 1:
        return ["gate" if gate else "up" for gate in gates]
    return [str(number) for number in range(1, len(results) + 1)]


def _attended(value: Value, readers: Mapping[Value, Sequence[Statement]]) -> str:
    """The role (q, k or v) in which attention reads a value without another product in between; empty if there is
    none.
    """
    places, seen, left = set[int](), {value}, [value]
    while left:
        value = left.pop()
        for reader in readers.get(value, ()):
            if reader.operator.endswith("_attention"):
                places |= {place for place, operand in enumerate(reader.operands) if operand.value is value}
            elif reader.operator not in _PRODUCTS:
                left += [result for result in reader.results if result not in seen]
                seen |= {*reader.results}
    return "qkv"[places.pop()] if len(places) == 1 and max(places) < 3 else ""
