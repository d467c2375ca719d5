"""Operators that index notation cannot say (`extern op`): they are their native calls, and return integers.

What equations would prove is declared: along the axes of the line `axes:` a slice of the operands gives that slice of
the result. That is assumed, never called proved; here it is tried on samples, with many ties, before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..syntax.ast import OperatorDecl
from ..syntax.diagnostic import fail, suggest
from .instance import Instance, Operand
from .native import evaluate_array
from .representative import small_instances

Array = npt.NDArray[Any]

SAMPLES = 40
"""Instances at which a declaration is tried when it is read, each at slices for 2 and for 3 devices."""
DEGREES = (2, 3)


def check_extern(operator: OperatorDecl) -> None:
    """An extern operator is complete, returns one integer tensor, and divides axes that it can. Raises E117."""
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
    """The result by the `numpy:` line. Raises ValueError where that is not of the declared shape and range."""
    operator, (output,) = instance.operator, instance.outputs
    assert operator.numpy is not None and output.integer_range is not None
    found = np.asarray(evaluate_array(operator.numpy, {**instance.attributes, **values}, instance.sizes))
    if found.shape != instance.shape(output) or found.dtype.kind != "i":
        shape = f"{found.dtype} of shape {found.shape}"
        raise ValueError(f"{output.name} is {shape}, declared are integers of shape {instance.shape(output)}")
    if found.size and not 0 <= found.min() <= found.max() < output.integer_range:
        raise ValueError(
            f"{output.name} has values {found.min()} to {found.max()}, outside [0, {output.integer_range})"
        )
    return found.astype(np.int64)


# ---------------------------------------------------------------------------------------------- samples


@dataclass(frozen=True)
class Contradiction:
    """A sample at which a declaration does not hold: the sizes there, and what is wrong."""

    sizes: Mapping[str, int]
    reason: str
    axis: str | None = None


def check_declared(operator: OperatorDecl, samples: int = SAMPLES) -> None:
    """Try what an extern operator declares. Raises E118 for an axis along which slices give something else."""
    found = contradiction(operator, samples)
    if found is None:
        return
    at = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    span = next((axis.span for axis in operator.declared if axis.name == found.axis), operator.span)
    help = "" if found.axis is None else "leave the axis out of `axes:`; the operator then runs on all of it"
    raise fail("E118", f"`{operator.name}`: {found.reason}{' at ' if at else ''}{at}", span, help=help)


def contradiction(operator: OperatorDecl, samples: int) -> Contradiction | None:
    """The first of so many samples that contradicts the declaration; they are the same on every run."""
    random = np.random.default_rng(0)
    instances = list(small_instances(operator, random, samples))
    if not instances:
        return Contradiction({}, "no sizes were found that meet its conditions")
    for instance in instances:
        values = {operand.name: _draw(instance, operand, random) for operand in instance.inputs}
        try:
            whole = evaluate_extern(instance, values)
        except (ValueError, IndexError, TypeError) as error:
            return Contradiction(instance.sizes, str(error))
        for axis, name in instance.declared.items():
            for degree in DEGREES:
                reason = None if instance.sizes[axis] % degree else _differs(instance, axis, degree, values, whole)
                if reason is not None:
                    return Contradiction(instance.sizes, reason, name)
    return None


def _draw(instance: Instance, operand: Operand, random: np.random.Generator) -> Array:
    """Few different numbers, so that ties are many; now and then all different ones."""
    shape = instance.shape(operand)
    if operand.integer_range is not None:
        return random.integers(0, operand.integer_range, shape)
    return random.standard_normal(shape) if random.random() < 0.3 else random.integers(-2, 3, shape).astype(np.float64)


def _differs(instance: Instance, axis: str, degree: int, values: Mapping[str, Array], whole: Array) -> str | None:
    """What is wrong with the slices of one axis, in words."""
    local = replace(instance, sizes={**instance.sizes, axis: instance.sizes[axis] // degree})
    for device in range(degree):
        parts = {given.name: _slice(given, values[given.name], axis, degree, device) for given in instance.inputs}
        try:
            found = evaluate_extern(local, parts)
        except (ValueError, IndexError, TypeError) as reason:
            return f"on slice {device} of {degree} of `{instance.declared[axis]}` {reason}"
        if not np.array_equal(found, _slice(instance.outputs[0], whole, axis, degree, device)):
            return f"slice {device} of {degree} of `{instance.declared[axis]}` is not that slice of the result"
    return None


def _slice(operand: Operand, value: Array, axis: str, degree: int, device: int) -> Array:
    """What a device has of a tensor."""
    for place, dim in enumerate(operand.dims):
        if axis in dim:
            value = np.split(value, degree, axis=place)[device]
    return value
