"""Lowers sums of products that are linear maps of the last axis to `F.linear`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .torch_term import Argument, Term, Variable, torch_call
from .value_lowering import Statement


def linear(pieces: Sequence[Term], free: Sequence[str], sizes: Mapping[str, int], one: bool = False) -> Term | None:
    """A linear map of the last axis to several axes, without its bias, as `F.linear` with a matrix as weight.

    With `one`, a map to a single axis is lowered as well. None for any other product.
    """
    if len(pieces) != 2 or not all(piece.axes for piece in pieces):
        return None
    (*rows, first), (*columns, second) = (piece.axes for piece in pieces)
    if first != second or [*rows, *columns] != list(free) or not rows or len(columns) < (1 if one else 2):
        return None
    x, w = pieces
    if len(columns) == 1:
        return torch_call("F.linear", x, w, axes=free)
    matrix = w.method("flatten", 0, len(columns) - 1, axes=("o", first))
    product = torch_call("F.linear", x, matrix, axes=(*rows, "o"))
    return product.method("unflatten", len(rows), tuple(sizes[axis] for axis in columns), axes=free)


def with_biases(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements, with each such map merged with the next statement if that adds a bias to its result."""
    found: list[Statement] = []
    for statement in statements:
        match statement.value:
            case Term("+", (Term("name", (Variable() as variable,)), Term() as bias)) if found:
                made = found[-1].value if found[-1].variables == (variable,) else None
                joined = _with_bias(made, bias) if made is not None else None
                if joined is not None and sum(_uses(other.value, variable) for other in statements) == 1:
                    found[-1] = replace(statement, value=joined)
                    continue
        found.append(statement)
    return tuple(found)


def _with_bias(total: Term, bias: Term) -> Term | None:
    match total:
        case Term(".unflatten", (Term("F.linear", (Term() as x, Term() as w)), int(place), sizes)):
            if bias.axes == total.axes[place:]:
                flat = bias.method("flatten", 0, axes=("o",))
                product = torch_call("F.linear", x, w, flat, axes=(*total.axes[:place], "o"))
                return product.method("unflatten", place, sizes, axes=total.axes)
    return None


def _uses(argument: Argument, variable: Variable) -> int:
    """How often a term reads a variable."""
    match argument:
        case Variable():
            return int(argument == variable)
        case Term():
            inner = (*argument.arguments, *(value for _, value in argument.keywords))
            return sum(_uses(part, variable) for part in inner)
        case tuple() | list():
            return sum(_uses(part, variable) for part in argument)
    return 0
