"""How much an operator computes and moves: floating-point operations and bytes, at any sizes of its axes.

An operator is counted as one kernel: it reads its inputs and writes its outputs once, intermediates stay inside. A
guarded sum `sum(v) [v == ids[n]] * w[v, d]` is counted as what it is lowered to, one row per position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..syntax.ast import Apply, Expr, Name, Read
from .instance import Equation, Instance
from .linearity import linear_operands
from .term import children, free_axes, reads

Count = Any
"""A float, or a NumPy array of counts where sizes are arrays."""

INTEGER_BYTES = 8


@dataclass(frozen=True)
class Work:
    """Operations, and bytes read and written."""

    flops: Count
    bytes_read: Count
    bytes_written: Count


def work(instance: Instance, sizes: Mapping[str, Count] | None = None, element_bytes: int = 4) -> Work:
    """The forward computation. `sizes` default to the instance's own; they may be arrays of equal shape."""
    sizes = instance.sizes if sizes is None else sizes
    flops = sum((_flops(equation, sizes) for equation in instance.equations), 0.0)
    read = sum((count * (element_bytes if real else INTEGER_BYTES) for count, real in _inputs(instance, sizes)), 0.0)
    written = sum((_extent(output.axes, sizes) for output in instance.outputs), 0.0) * element_bytes
    return Work(flops, read, written)


def backward_work(
    instance: Instance, needs: Sequence[bool], sizes: Mapping[str, Count] | None = None, element_bytes: int = 4
) -> Work:
    """The backward computation for the inputs that need a gradient.

    The adjoint of a product in one factor costs what the product costs; of any other function, twice the function. It
    reads the inputs and the results' cotangents and writes the inputs' cotangents.
    """
    sizes = instance.sizes if sizes is None else sizes
    forward = work(instance, sizes, element_bytes)
    needed = [i for i, need in enumerate(needs) if need]
    linear = {i for chosen in linear_operands(instance) if len(chosen) == 1 for i in chosen}
    times = len(needed) if linear.issuperset(needed) else 2
    counts = [count for count, _ in _inputs(instance, sizes)]
    written = sum((counts[i] for i in needed), 0.0) * element_bytes
    return Work(forward.flops * times, forward.bytes_read + forward.bytes_written, written)


def _extent(axes: Sequence[str], sizes: Mapping[str, Count]) -> Count:
    count: Count = 1.0
    for axis in axes:
        count = count * sizes[axis]
    return count


def _flops(equation: Equation, sizes: Mapping[str, Count]) -> Count:
    return _extent(equation.space, sizes) * operations_of(equation)


def operations_of(equation: Equation) -> int:
    """Operations per point of the space, and one more to accumulate; moving rows computes nothing."""
    return 0 if determined_axes(equation) else _operations(equation.value) + bool(equation.over)


def _operations(expr: Expr) -> int:
    """Arithmetic and functions; comparisons and the indices of reads are addressing."""
    if isinstance(expr, Read):
        return 0
    own = isinstance(expr, Apply) and expr.function not in _COMPARISONS
    return own + sum(_operations(child) for child in children(expr))


_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


def determined_axes(equation: Equation) -> frozenset[str]:
    """Reduced axes that a guard `[v == ids[n]]` determines: one position of them is read."""
    return frozenset(_guarded(equation.value, frozenset(equation.over)))


def _guarded(expr: Expr, over: frozenset[str]) -> Iterator[str]:
    match expr:
        case Apply(function="*" | "/", arguments=arguments):
            for argument in arguments:
                yield from _guarded(argument, over)
        case Apply(function="==", arguments=(left, right)):
            for side, other in ((left, right), (right, left)):
                if isinstance(side, Name) and side.name in over and side.name not in free_axes(other):
                    yield side.name


def _inputs(instance: Instance, sizes: Mapping[str, Count]) -> list[tuple[Count, bool]]:
    """Per input: how many of its elements are read, and whether they are floats."""
    found = []
    for operand in instance.inputs:
        count = _extent(operand.axes, sizes)
        for equation in instance.equations:
            solved = determined_axes(equation)
            if solved & set(operand.axes) and any(r.tensor == operand.name for r in reads(equation.value)):
                count = _extent([axis for axis in equation.space if axis not in solved], sizes)
        found.append((count, operand.integer_range is None))
    return found
