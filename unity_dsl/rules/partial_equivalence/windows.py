"""The elements of its operands that a call reads for an interval of its result, from the index expressions of its
declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ...index.equations.term import free_axes, reads
from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.polynomial import ONE, ZERO, Poly, Var, of, product
from ...prove.translation.operator_forms import Call
from ...syntax.ast import Name, Read


@dataclass(frozen=True)
class Window:
    """For position i, dimension `dim` of operand `operand` is read at `step * i + rest`, low <= rest <= high.

    `size` is the size of the dimension.
    """

    operand: int
    dim: int
    step: int
    low: Poly
    high: Poly
    size: Poly

    @property
    def aligned(self) -> bool:
        """Whether position i is read only for position i."""
        return self.step == 1 and not self.low.terms and not self.high.terms


def windows(call: Call, result: int, dim: int) -> tuple[Window, ...]:
    """The windows of a call along a dimension of its result, one for each dimension of an operand over which it moves.

    Raises Unsupported if reads have different steps, or go through tensors that the operator computes itself.
    """
    axes = call.instance.outputs[result].dims[dim]
    if len(axes) != 1 or len(call.instance.equations) != 1:
        raise Unsupported(f"`{call.instance.name}`: an interval of a merged dimension")
    found: dict[tuple[int, int], Window] = {}
    for read in (read for equation in call.instance.equations for read in reads(equation.value)):
        for window in _windows_of_read(call, axes[0], read):
            known = found.setdefault((window.operand, window.dim), window)
            if known != window:
                raise Unsupported(f"`{call.instance.name}`: two windows of one dimension")
    return tuple(found.values())


def _windows_of_read(call: Call, axis: str, read: Read) -> Iterator[Window]:
    names = [operand.name for operand in call.instance.inputs]
    for dim, index in enumerate(read.index):
        if axis not in free_axes(index):
            continue
        place = names.index(read.tensor)
        size = product(var.size for var in call.tensors[read.tensor].dims[dim])
        if index == Name(axis):
            yield Window(place, dim, 1, ZERO, ZERO, size)
            continue
        position = call.integer(index)
        own = call.axes[axis]
        if position is None or len(own) != 1:
            raise Unsupported(f"`{call.instance.name}`: an index that is not affine in `{axis}`")
        step, rest = _affine(position, own[0])
        if step is None or step.denominator != 1 or step < 1:
            raise Unsupported(f"`{call.instance.name}`: an index that does not grow with `{axis}` in whole steps")
        yield Window(place, dim, int(step), _end(rest, largest=False), _end(rest, largest=True), size)


def _affine(position: Poly, var: Var) -> tuple[Fraction | None, Poly]:
    step = position.coefficient(var)
    return step, position - of(var).scaled(step or 0)


def _end(rest: Poly, *, largest: bool) -> Poly:
    """The least or the greatest value of a sum of multiples of indices."""
    ends: Mapping[Var, Poly] = {
        var: var.size - ONE if _grows(rest, var) is largest else ZERO
        for var in sorted(rest.variables, key=lambda var: var.key)
    }
    return rest.substitute(ends)


def _grows(rest: Poly, var: Var) -> bool:
    """Whether an expression grows with an index, by the signs of its coefficients. Raises Unsupported if the signs
    differ.
    """
    signs = {factor > 0 for monomial, factor in rest.terms if any(symbol == var for symbol, _ in monomial)}
    if len(signs) != 1:
        raise Unsupported("an index that may grow or fall with another")
    return signs.pop()
