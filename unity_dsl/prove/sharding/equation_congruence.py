"""Proves a division by congruence: each device evaluates the same equations at the positions of its own slice.

Let the axis have p × e positions, device r those from r e on. By induction over the equations, a tensor with the axis
is on device r the slice of the whole one, and a tensor without it is the same on all devices:

- a read at the axis itself, of the one dimension that has it, gets the same element from the slice as from the whole;
- every other index depends on the axis only through elements that are read in the same way;
- hence all arguments of functions, comparisons and branches agree, and equal arguments have equal values, or none;
- a sum, maximum or minimum over the axis is the same reduction, over the devices, of the results on each device.

The argument does not depend on what the functions compute: it uses no law and assumes no fact about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...index.equations.instance import Equation, Instance, Operand
from ...index.equations.term import dim_index, free_axes, is_rest, reads, rewrite, walk
from ...index.equations.term_text import expression_text
from ...index.equations.where_conditions import mentions_rank
from ...syntax.ast import Expr, Name, Number, Read, ReductionKind
from ..answer import Obligation

_COMBINED = frozenset({ReductionKind.SUM, ReductionKind.MAX, ReductionKind.MIN})
"""Reductions that can be completed over devices from the result on each device."""


def congruence(instance: Instance, axis: str) -> tuple[Obligation, ...]:
    """The obligations that a division of this axis meets if it has no `obstacles`."""
    met = [Obligation("in_bounds", f"every slice is read at `{axis}` itself")]
    for operand in instance.outputs:
        collected = "combined" if axis in operand.axes else "the same on every device"
        met.append(Obligation("same_value", f"`{operand.name}`, {collected}: by congruence of all equations"))
    return tuple(met)


def obstacles(instance: Instance, axis: str) -> Iterator[str]:
    """The reasons why congruence does not prove a division of this axis, with their places in the source if known."""
    if instance.extern:
        yield "an extern operator has no equations"
    for condition in instance.operator.conditions:
        # A size computed from that of the axis would differ on a slice.
        if not mentions_rank(condition) and (axis in free_axes(condition) or any(map(is_rest, walk(condition)))):
            yield f"a condition may relate `{axis}` to other sizes{_at(condition)}"
    made = [equation.target for equation in instance.equations]
    operands = {operand.name: operand for operand in (*instance.inputs, *made)}
    for operand in operands.values():
        if operand.axes.count(axis) > 1:
            yield f"`{operand.name}` has `{axis}` in more than one dimension"
    for equation in instance.equations:
        yield from _in_equation(equation, axis, operands)


def _in_equation(equation: Equation, axis: str, operands: Mapping[str, Operand]) -> Iterator[str]:
    if axis in equation.over and equation.kind not in _COMBINED:
        yield f"`{equation.target.name}` is a product over `{axis}`{_at(equation)}"
    if axis in equation.over and equation.target.integer_range is not None:
        yield f"`{equation.target.name}`, of integers, is reduced over `{axis}`{_at(equation)}"
    for read in reads(equation.value):
        operand = operands.get(read.tensor)
        if operand is None:  # a real attribute, which every device has
            continue
        for index, dim in zip(read.index, operand.dims, strict=True):
            if axis in dim:
                if index not in (dim_index(dim), *map(Name, dim[:1] if len(dim) == 1 else ())):
                    yield f"`{expression_text(read)}` is not read at the axis itself{_at(read, equation)}"
            elif axis in free_axes(_apart_from_reads(index)):
                yield f"`{expression_text(read)}` has the axis in another dimension{_at(read, equation)}"


def _apart_from_reads(index: Expr) -> Expr:
    """An index with the elements in it replaced by 0, since these reads are checked separately."""
    return rewrite(index, lambda node: Number(0) if isinstance(node, Read) else node)


def _at(*nodes: Expr | Equation) -> str:
    """The source place of the first node that has one, in parentheses; empty if none has."""
    span = next((node.span for node in nodes if node.span is not None), None)
    return "" if span is None else f" ({span})"
