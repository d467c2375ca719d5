"""Prices in seconds of casts between float types: of operands and results of operators, and of stored weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from ..graph.graph import DTYPE_BYTES, Node, Value
from ..graph.local_operator import LocalOperator
from ..graph.precision import operand_types, result_types
from ..index.cost.work import Work
from ..index.equations.instance import Operand
from .machine import Machine
from .measured_operators import CAST, CurveKey, Direction
from .operator_price import Seconds


def price_casts(elements: Seconds, source: str, target: str, machine: Machine) -> Seconds:
    """Seconds of kernels that read so many elements of one type and write them in another. Measured times are used if
    there is a curve for the source type.
    """
    count = elements * (DTYPE_BYTES[source] + DTYPE_BYTES[target])
    measured = machine.measured.curves.get(CurveKey(CAST, source, Direction.FORWARD))
    seconds = machine.traffic_seconds(count) if measured is None else measured.at(Work(0, count, 0))
    return np.asarray(machine.exposed_launch + seconds)


def price_stored_casts(value: Value, held: Seconds, machine: Machine) -> Seconds:
    """Seconds of casting a weight, for the fractions that a device stores; 0 if the weight is read as stored."""
    if not value.is_cast:
        return np.zeros(np.shape(held))
    return price_casts(value.elements * held, value.stored_dtype, value.dtype, machine)


def price_stored_cast(value: Value, held: float, machine: Machine) -> float:
    """`price_stored_casts` for one fraction."""
    return float(price_stored_casts(value, np.asarray(held), machine))


def price_operand_casts(
    node: Node, typed: Sequence[LocalOperator], dtype: str, machine: Machine, *, backward: bool = True
) -> Seconds:
    """Seconds of the casts around an operator that runs in `dtype`: forward, and with `backward` also those of the
    backward pass, including its weights' gradients. Shape [configurations].
    """
    seconds = np.zeros(len(typed))
    for operand, source, target in _casts(node, dtype, backward):
        elements = [float(prod(found.local_sizes[axis] for axis in operand.axes)) for found in typed]
        seconds += price_casts(np.array(elements), source, target, machine)
    return seconds


def _casts(node: Node, dtype: str, backward: bool) -> Iterator[tuple[Operand, str, str]]:
    """Every cast in a step, or in its forward alone: the operand, the source type and the target type."""
    instance = node.instance
    gradients = [backward and gradient for gradient in node.gradients]
    pairs = zip(node.arguments, operand_types(node, dtype), instance.inputs, gradients, strict=True)
    for value, wanted, operand, gradient in pairs:
        if value.dtype != wanted:
            yield operand, value.dtype, wanted
            if gradient:
                yield operand, wanted, value.dtype
        if gradient and value.is_cast:
            yield operand, value.dtype, value.stored_dtype
    for value, made, operand in zip(node.results, result_types(node, dtype), instance.outputs, strict=True):
        if made != value.dtype:
            yield operand, made, value.dtype
            if backward and value.needs_gradient:
                yield operand, value.dtype, made
