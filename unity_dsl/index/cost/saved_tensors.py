"""Tensors that the forward pass of an operator saves for its backward pass.

A native call saves the operands that its gradients depend on, or its result if that suffices; intermediates are
recomputed, or saved in as few bytes. Statements save what torch's autograd saves: factors multiplied by one with a
gradient, divisors, and for element functions the argument or, where the declared derivative contains the function
itself, the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...syntax.ast import Apply, Expr, Name, NativeCall, Read, ReductionKind, Select, Uniform
from ..equations.instance import Equation, Instance
from ..equations.term import COMPARISONS, children, free_axes, reads, walk
from ..evaluation.native_calls import RESULT_CALLS
from ..gradients.adjoint import adjoint
from ..gradients.derivative import dependents, smooth_reads
from ..gradients.independence import gradient_free
from ..library import Library

Tensor = str | Expr
"""An operand, intermediate or result by name; any other term denotes the tensor of its values."""


def saved_by_call(instance: Instance, library: Library, needs: Sequence[bool]) -> frozenset[str]:
    """Names of operands and results that the native call saves for the cotangents of the inputs that need one."""
    found: set[str] = set()
    for position, operand in enumerate(instance.inputs):
        if needs[position] and operand.integer_range is None:
            made = adjoint(instance, library, position).equations
            found.update(read.tensor for equation in made for read in reads(equation.value))
    torch = instance.operator.torch
    if isinstance(torch, NativeCall) and torch.function in RESULT_CALLS and found:
        return frozenset(output.name for output in instance.outputs)
    return frozenset(operand.name for operand in instance.inputs if operand.name in found)


def saved_by_statements(
    instance: Instance, library: Library, needs: Sequence[bool]
) -> Mapping[Tensor, tuple[str, ...]]:
    """The tensors that the statements save, with their axes; operands and intermediates by name."""
    given = zip(instance.inputs, needs, strict=True)
    moved = frozenset(operand.name for operand, needed in given if needed and operand.integer_range is None)
    active = (moved | dependents(instance, moved)) - gradient_free(instance)
    known: dict[Expr, str] = {e.value: e.target.name for e in instance.equations if e.kind is None}
    saved: dict[Tensor, tuple[str, ...]] = {}
    for equation in instance.equations:
        if equation.target.name in active:
            for term in _saved_terms(equation, library, active):
                name = term.tensor if isinstance(term, Read) else known.get(term)
                if name is not None:
                    saved[name] = instance.operand(name).axes
                elif any(isinstance(node, Read | Uniform) for node in walk(term)):
                    saved[term] = tuple(axis for axis in equation.space if axis in free_axes(term))
    return saved


def _saved_terms(equation: Equation, library: Library, active: frozenset[str]) -> Iterator[Expr]:
    yield from _saved_of(equation.value, library, active)
    if equation.kind in (ReductionKind.MAX, ReductionKind.MIN, ReductionKind.PROD):
        yield equation.value
        yield Read(equation.target.name, tuple(map(Name, equation.target.axes)))


def _saved_of(value: Expr, library: Library, active: frozenset[str]) -> Iterator[Expr]:
    def moves(term: Expr) -> bool:
        return any(read.tensor in active for read in smooth_reads(term))

    match value:
        case Apply("*", (left, right)):
            yield from (left,) * moves(right) + (right,) * moves(left)
        case Apply("/", (left, right)):
            yield right
            yield from (left,) * moves(right)
        case Select(condition, _, _):
            yield condition
        case Apply(function, arguments) if function in library.functions and moves(value):
            slopes = [slope for _, slope in library.functions[function].derivatives]
            declared = tuple(map(Name, library.functions[function].parameters))
            by_result = all(_said_by(slope, Apply(function, declared)) for slope in slopes)
            yield from (value,) if by_result else arguments
    if moves(value):
        for child in children(value):
            yield from _saved_of(child, library, active)


def _said_by(slope: Expr, result: Expr) -> bool:
    """Whether a derivative depends on the arguments only through the function's result."""
    if slope == result:
        return True
    return not isinstance(slope, Name) and all(_said_by(child, result) for child in children(slope))


def element_bytes(term: Tensor, width: int) -> int:
    """Bytes of one element: `width` for floats, one for booleans."""
    return 1 if isinstance(term, Apply) and term.function in COMPARISONS else width
