"""Extern operators (`extern op`): checks and evaluates native calls that index notation cannot express.

The line `axes:` declares the axes along which slices of the operands give slices of the result. It is assumed, never
called proved, and tested on samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import OperatorDecl
from ...syntax.diagnostic import fail, suggest
from ..equations.instance import Instance
from .native_calls import evaluate_array

Array = npt.NDArray[Any]


def check_extern(operator: OperatorDecl) -> None:
    """Checks that an extern operator is complete, returns one integer tensor, and declares axes of it. Raises E117."""
    name = operator.name
    for line, call in (("torch", operator.torch), ("numpy", operator.numpy)):
        if call is None:
            help = f"an extern operator has no statements, so add a line `{line}: …`"
            raise fail("E117", f"`{name}` has no `{line}:` line", operator.span, help=help)
    if len(operator.outputs) != 1 or operator.outputs[0].integer_range is None:
        help = "return positions, `-> i: int<c>[…]`, and gather the values"
        span = operator.outputs[0].span if len(operator.outputs) == 1 else operator.outputs[1].span
        raise fail("E117", "an extern operator returns one tensor of integers", span, help=help)
    (output,) = operator.outputs
    read = {dim.name for tensor in operator.inputs for dim in tensor.dims}
    kept = [dim.name for dim in output.dims]
    ranges = {tensor.integer_range for tensor in (*operator.inputs, output)}
    for axis in operator.declared:
        slot = next((dim for dim in output.dims if dim.name == axis.name), None)
        if axis.name not in read or slot is None:
            help = suggest(axis.name, [dim for dim in kept if dim in read])
            raise fail("E117", f"`{axis.name}` is no axis of both an input and the result", axis.span, help=help)
        if slot.rest != axis.rest:
            raise fail("E117", f"the result has `{axis.name}{'..' * slot.rest}`", axis.span)
        if axis.name in ranges:
            raise fail("E117", f"`{axis.name}` bounds the integers: they count over all of it", axis.span)


def evaluate_extern(instance: Instance, values: Mapping[str, Array]) -> Array:
    """Evaluates the `numpy:` line.

    Raises ValueError if the result's shape is not the declared one, or it is not integer.
    """
    operator, (output,) = instance.operator, instance.outputs
    assert operator.numpy is not None and output.integer_range is not None
    found = np.asarray(evaluate_array(operator.numpy, {**instance.attributes, **values}, instance.sizes))
    if found.shape != instance.shape(output) or found.dtype.kind != "i":
        shape = f"{found.dtype} of shape {found.shape}"
        raise ValueError(f"{output.name} is {shape}, declared are integers of shape {instance.shape(output)}")
    return found.astype(np.int64)
