"""The lines of a body at given parameters: those of every `if` whose conditions hold, or else of its `else`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ..syntax.ast import Apply, If, ModelStatement, Nested
from .model_parameters import Numeric, fold

_HOLDS: Mapping[str, Callable[[Numeric, Numeric], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def chosen_lines(statements: Iterable[ModelStatement], numbers: Mapping[str, Numeric]) -> tuple[ModelStatement, ...]:
    """The statements with every `if` resolved, inside bodies too. A body that becomes empty is left out.

    Raises E203 for a condition with a name that is no parameter.
    """
    return tuple(_chosen(statements, numbers))


def _chosen(statements: Iterable[ModelStatement], numbers: Mapping[str, Numeric]) -> Iterator[ModelStatement]:
    for statement in statements:
        if isinstance(statement, If):
            holds = all(_holds(condition, numbers) for condition in statement.conditions)
            yield from _chosen(statement.body if holds else statement.otherwise, numbers)
        elif isinstance(statement, Nested):
            if body := chosen_lines(statement.body, numbers):
                yield replace(statement, body=body)
        else:
            yield statement


def _holds(condition: Apply, numbers: Mapping[str, Numeric]) -> bool:
    left, right = (fold(side, numbers) for side in condition.arguments)
    return _HOLDS[condition.function](left, right)
