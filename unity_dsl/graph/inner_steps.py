"""The collectives inside a divided operator, as its emitted code runs them."""

from __future__ import annotations

from math import prod

from ..index.equations.instance import Instance
from ..index.lowering.division import InnerMoments, InnerReduce
from .collective_steps import Step, StepKind
from .graph import DTYPE_BYTES
from .local_operator import LocalOperator

InnerSteps = tuple[tuple[Step, int], ...]
"""Collectives, each with the number of bytes that a device holds before it."""


def inner_steps(instance: Instance, typed: LocalOperator, width: int) -> tuple[InnerSteps, InnerSteps]:
    """The collectives of the forward and of the backward pass. Forward they reduce results and average the means and
    variances of parts. Backward they sum the gradients of tensors that are copied forward, and the two sums that are
    the gradients of mean and variance. Floats have `width` bytes.

    Mean and variance are averaged together, in float64. If floats are float64 already, they are averaged one after the
    other.
    """
    forward: list[tuple[Step, int]] = []
    backward: list[tuple[Step, int]] = []
    for one in typed.inner:
        if isinstance(one, InnerMoments | InnerReduce):
            operand = instance.equations[one.equation].target
        else:
            operand = instance.operand(one.operand)
        count = prod(typed.local_sizes[axis] for axis in operand.axes) * width
        match one:
            case InnerMoments(axes=axes):
                average = Step(StepKind.ALL_REDUCE, axes)
                exact = DTYPE_BYTES["f64"]
                forward += [(average, count)] * 2 if width == exact else [(average, 2 * count // width * exact)]
                backward.append((average, 2 * count))
            case InnerReduce(axes=axes):
                forward.append((Step(StepKind.ALL_REDUCE, axes), count))
            case _:
                backward.append((Step(StepKind.ALL_REDUCE, one.axes), count))
    return tuple(forward), tuple(backward)
