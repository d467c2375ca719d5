"""Finds reads that are out of bounds at every size, `x[c + 1]` of a tensor over `c`: faults of a declaration itself.

Only indices of one axis and an integer are checked. Any other read may be in bounds at some sizes: a call shows this.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, Read, Reduce, Statement
from ...syntax.diagnostic import fail
from ..equations.term import children

Runs = Mapping[str, str]
"""For each index, the dimension over which it runs."""


def check_reads(operator: OperatorDecl) -> None:
    """Raises E128 for a read without a fill that is outside its tensor at every size."""
    outputs = {output.name: [dim.name for dim in output.dims] for output in operator.outputs}
    for statements in (operator.statements, operator.evaluation):
        slots = {tensor.name: [dim.name for dim in tensor.dims] for tensor in operator.inputs}
        for statement in statements:
            # Indices of results bind by position.
            runs = outputs.get(statement.target) or [index.name for index in statement.index]
            _check(statement.value, dict(zip(_names(statement), runs, strict=True)), slots)
            slots[statement.target] = runs


def _names(statement: Statement) -> list[str]:
    return [index.name for index in statement.index]


def _check(expr: Expr, runs: Runs, slots: Mapping[str, list[str]]) -> None:
    match expr:
        case Reduce(_, axes, body):
            _check(body, {**runs, **{axis.name: axis.name for axis in axes}}, slots)
        case Read(tensor, index, None):
            for part, dim in zip(index, slots[tensor], strict=True):
                offset = _offset(part)
                if offset is not None and _is_outside(*offset, runs, dim):
                    text = f"`{part.span.text}`" if part.span is not None else "its index"
                    message = f"`{tensor}` is read outside its positions at every size: {text} runs over `{dim}`"
                    help = f"write `{tensor}[… else 0]` if values outside are wanted"
                    raise fail("E128", message, part.span or expr.span, help=help)
        case _:
            for part in children(expr):
                _check(part, runs, slots)


def _offset(index: Expr) -> tuple[str, int] | None:
    """The axis and the offset of an index such as `c + 1` or `c - 1`; None for any other index."""
    match index:
        case Apply("+", (Name(name, False), Number(int(value)))) | Apply("+", (Number(int(value)), Name(name, False))):
            return name, value
        case Apply("-", (Name(name, False), Number(int(value)))):
            return name, -value
    return None


def _is_outside(name: str, offset: int, runs: Runs, dim: str) -> bool:
    """Whether an index is before the first position, or after the last if it runs over the whole dimension."""
    return name in runs and (offset < 0 or (offset > 0 and runs[name] == dim))
