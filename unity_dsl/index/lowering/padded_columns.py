"""Pads the weights of linear maps by rows of zeros, so that the rows of their results have an aligned length."""

from __future__ import annotations

from dataclasses import replace

from .operator_lowering import Lowering
from .torch_term import Argument, Term, torch_call

LINEAR = "F.linear"
"""The call whose columns may be padded."""


def with_padded_columns(lowering: Lowering, columns: int, extra: int) -> Lowering:
    """The lowering with `extra` columns added to each linear map, and results narrowed to the first `columns`.

    The narrowed result is a view. Autograd pads its cotangent with zeros, and takes the first rows of the weight's
    gradient. A function of the same name in another module gets a weight that is padded already.
    """

    def changed(argument: Argument) -> Argument:
        if not isinstance(argument, Term):
            return argument
        found = argument.mapped(changed)
        if argument.operation.rpartition(".")[2] != LINEAR.rpartition(".")[2]:
            return found
        x, weight, *bias = found.arguments
        assert isinstance(weight, Term)
        if argument.operation == LINEAR:
            weight = padded_weight(weight, extra)
        padded = [torch_call("F.pad", part, (0, extra)) for part in bias]
        made = torch_call(argument.operation, x, weight, *padded, axes=found.axes)
        return made.method("narrow", -1, 0, columns)

    statements = []
    for statement in lowering.statements:
        value = changed(statement.value)
        assert isinstance(value, Term)
        statements.append(replace(statement, value=value))
    return replace(lowering, statements=tuple(statements))


def padded_weight(weight: Term, extra: int) -> Term:
    """A weight with `extra` more rows, of zeros."""
    return torch_call("F.pad", weight, (0, 0, 0, extra), axes=weight.axes)
