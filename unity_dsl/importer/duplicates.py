"""Leaves out statements that compute what another one of the same layer computes: a module that slices twice alike."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from .folding import layer_of
from .statements import Imported, Statement
from .views import Axis, Value, View


def without_duplicates(model: Imported) -> Imported:
    """The model in which what is computed twice of the same operands is computed once, but for what draws random
    numbers and for blocks. Layers keep what each computes, so that they stay alike.
    """
    same: dict[Value, Value] = {}
    first: dict[object, Statement] = {}
    kept: list[Statement] = []

    def of_first(view: View) -> View:
        return replace(view, value=same.get(view.value, view.value))

    for given in model.statements:
        statement = replace(given, operands=tuple(map(of_first, given.operands)))
        if statement.operator in model.blocks or _draws(statement):
            kept.append(statement)
            continue
        settings = tuple(sorted(statement.settings.items()))
        key = layer_of(statement), statement.operator, tuple(map(_content, statement.operands)), settings
        if (before := first.setdefault(key, statement)) is statement:
            kept.append(statement)
        else:
            same.update(zip(statement.results, before.results, strict=True))
    loss = None if model.loss is None else of_first(model.loss)
    outputs = [(name, of_first(view)) for name, view in model.outputs]
    updates = [(value, of_first(view)) for value, view in model.updates]
    return replace(model, statements=kept, loss=loss, outputs=outputs, updates=updates)


def _draws(statement: Statement) -> bool:
    return "dropout" in statement.operator or statement.settings.get("p", "0") not in ("0", "0.0")


def _content(view: View) -> object:
    """The same for views that show the same elements of a value in the same arrangement."""
    if view.is_whole:
        return view.value
    numbers = dict[Axis, int]()
    for number, axis in zip(count(), (axis for dim in (*view.base, *view.dims) for axis in dim), strict=False):
        numbers.setdefault(axis, number)
    base, dims = (
        tuple(tuple((numbers[axis], axis.size) for axis in dim) for dim in part) for part in (view.base, view.dims)
    )
    return view.value, base, dims
