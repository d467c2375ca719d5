"""Removes statements that compute the same as an earlier one of the same layer, such as two equal slices."""

from __future__ import annotations

from dataclasses import replace

from .folding import layer_of
from .operators import arrangement
from .statements import DRAWING, Imported, Statement
from .views import Value, View


def without_duplicates(model: Imported) -> Imported:
    """The model without repeated statements that have equal operands; blocks and operators that draw random numbers
    stay. Statements are compared within one layer only, so that equal layers stay equal.
    """
    same: dict[Value, Value] = {}
    first: dict[object, Statement] = {}
    kept: list[Statement] = []

    def of_first(view: View) -> View:
        return replace(view, value=same.get(view.value, view.value))

    for given in model.statements:
        statement = replace(given, operands=tuple(map(of_first, given.operands)))
        if statement.operator in model.blocks or statement.operator in DRAWING:
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


def _content(view: View) -> object:
    """A key that is equal for views that show the same elements of a value in the same arrangement."""
    return view.value if view.is_whole else (view.value, arrangement(view))
