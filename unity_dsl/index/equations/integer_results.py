"""Checks that operators with integer results compute them from integers exactly."""

from __future__ import annotations

from collections.abc import Iterator

from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, Read, Reduce, Select, Size
from ...syntax.diagnostic import fail
from .term import COMPARISONS, children

_WHOLE = frozenset({"+", "-", "*", "//", "%", "neg"})


def check_results(operator: OperatorDecl) -> None:
    """Checks that results are all floats, or all integers computed from integers. Raises E119."""
    integers = [output for output in operator.outputs if output.integer_range is not None]
    if not integers:
        return
    for output in operator.outputs:
        if output.integer_range is None:
            help = "declare two operators: integers have no gradient"
            raise fail("E119", f"`{operator.name}` returns integers and floats", output.span, help=help)
    floats = {tensor.name for tensor in operator.inputs if tensor.integer_range is None}
    for statement in (*operator.statements, *operator.evaluation):
        _check_whole(statement.value, floats)


def integer_names(operator: OperatorDecl) -> set[str]:
    """The names that integer results are computed from; attributes among them must be integers."""
    if not any(output.integer_range is not None for output in operator.outputs):
        return set()
    statements = (*operator.statements, *operator.evaluation)
    return {name for statement in statements for name in _counted(statement.value)}


def _counted(expr: Expr) -> Iterator[str]:
    """Names outside of comparisons."""
    if isinstance(expr, Name):
        yield expr.name
    if not (isinstance(expr, Apply) and expr.function in COMPARISONS):
        for part in children(expr):
            yield from _counted(part)


def _check_whole(expr: Expr, floats: set[str]) -> None:
    """Checks that an expression is integer: floats occur inside comparisons only. Raises E119."""
    match expr:
        case Apply(function) if function in COMPARISONS:
            return
        case Apply(function) if function not in _WHOLE:
            raise fail("E119", f"`{function}` does not give whole numbers", expr.span)
        case Number(value) if not isinstance(value, int):
            raise fail("E119", f"{value:g} is no whole number", expr.span)
        case Read(tensor) if tensor in floats:
            raise fail("E119", f"`{tensor}` holds floats", expr.span, help="compare it: `[x[i] > 0]`")
        case Number() | Name() | Size() | Apply() | Read() | Reduce():
            parts = children(expr)
        case Select(_, then, otherwise):
            parts = (then, otherwise)
        case _:
            raise fail("E119", f"`{type(expr).__name__.lower()}` does not give whole numbers", expr.span)
    for part in parts:
        _check_whole(part, floats)
