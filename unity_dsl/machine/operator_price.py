"""Prices in seconds of operators, forward and backward, and of the optimizer's step: what was measured of the machine,
else a roofline and launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..graph.collective_steps import Step, StepKind
from ..graph.graph import DTYPE_BYTES
from ..graph.layout import Mesh
from ..graph.layout_typing import TypedOperator
from ..index.cost.work import Work, backward_work, work
from ..index.equations.instance import Instance
from ..index.lowering.division import InnerReduce
from ..index.lowering.execution import Execution
from .collective_price import price_steps
from .machine import Machine
from .measured_price import MeasuredPrice

Seconds = npt.NDArray[np.float64]


class Limit(StrEnum):
    """What takes a kernel's time: the arithmetic, the memory's traffic, or the launch where both take less."""

    ARITHMETIC = "arithmetic"
    MEMORY = "memory"
    LAUNCH = "launch"


def price_operator(
    instance: Instance, typed: TypedOperator, dtype: str, mesh: Mesh, machine: Machine, needs_gradient: Sequence[bool]
) -> float:
    """Seconds of an operator on one device, forward and backward: `price_operators` for one configuration."""
    return float(price_operators(instance, [typed], dtype, mesh, machine, needs_gradient)[0])


def price_operators(
    instance: Instance,
    typed: Sequence[TypedOperator],
    dtype: str,
    mesh: Mesh,
    machine: Machine,
    needs_gradient: Sequence[bool],
) -> Seconds:
    """Seconds of an operator under each of its configurations: a roofline of the local forward and backward work, the
    launches, and the collectives inside. Shape [configurations].
    """
    # Configurations that divide the same axes share what depends on these alone, and are priced once.
    different = {(id(found.local_sizes), id(found.inner), found.native): found for found in typed}
    number = {key: row for row, key in enumerate(different)}
    which = [number[id(found.local_sizes), id(found.inner), found.native] for found in typed]
    return _price_each(instance, list(different.values()), dtype, mesh, machine, needs_gradient)[which]


def _price_each(
    instance: Instance,
    typed: Sequence[TypedOperator],
    dtype: str,
    mesh: Mesh,
    machine: Machine,
    needs_gradient: Sequence[bool],
) -> Seconds:
    sizes = {axis: np.array([found.local_sizes[axis] for found in typed], dtype=float) for axis in instance.sizes}
    kernels = np.array([priced_kernels(instance, found) for found in typed])
    seconds = _datasheet_seconds(instance, sizes, kernels, dtype, machine, needs_gradient)
    for native in {found.native for found in typed} if machine.measured.curves or machine.measured.grids else ():
        measured = _measured_seconds(instance, native, sizes, dtype, machine, needs_gradient)
        if measured is not None:
            seconds = np.where([found.native == native for found in typed], measured, seconds)
    inner = [price_inner(instance, found, dtype, mesh, machine, any(needs_gradient)) for found in typed]
    return np.array(np.broadcast_to(seconds, len(typed)) + np.array(inner), dtype=np.float64)


def _datasheet_seconds(
    instance: Instance,
    sizes: Mapping[str, Seconds],
    kernels: npt.NDArray[np.int_],
    dtype: str,
    machine: Machine,
    needs_gradient: Sequence[bool],
) -> Seconds:
    width = DTYPE_BYTES[dtype]
    seconds = _roofline(work(instance, sizes, width), dtype, machine) + kernels * machine.launch_seconds
    if any(needs_gradient):
        backward = backward_work(instance, needs_gradient, sizes, width)
        seconds = seconds + _roofline(backward, dtype, machine) + kernels * machine.launch_seconds
    return seconds


def _measured_seconds(
    instance: Instance,
    native: bool,
    sizes: Mapping[str, Seconds],
    dtype: str,
    machine: Machine,
    needs_gradient: Sequence[bool],
) -> Seconds | None:
    """Of configurations of which all or none run the native call; None where that was not measured."""
    price = MeasuredPrice(instance, native, sizes, dtype, machine.measured, machine.launch_seconds)
    forward = price.forward()
    backward = price.backward(needs_gradient) if any(needs_gradient) else np.zeros(())
    return None if forward is None or backward is None else forward + backward


def priced_kernels(instance: Instance, typed: TypedOperator) -> int:
    """The kernels that `price_operators` counts: a native call is one, and so is each equation without it."""
    return 1 if typed.native else len(instance.equations)


def _roofline(done: Work, dtype: str, machine: Machine) -> Seconds:
    """The larger of arithmetic and memory traffic."""
    return np.asarray(np.maximum(*_parts(done, dtype, machine)), dtype=np.float64)


def _parts(done: Work, dtype: str, machine: Machine) -> tuple[Any, Any]:
    """Seconds of arithmetic and of memory traffic."""
    arithmetic = done.flops / (machine.peak[dtype] * machine.compute_efficiency)
    traffic = machine.traffic_seconds(done.bytes_read + done.bytes_written)
    return arithmetic, traffic


def limits_of_operator(
    instance: Instance, typed: TypedOperator, dtype: str, machine: Machine, needs_gradient: Sequence[bool]
) -> tuple[Limit, Limit]:
    """What an operator's time on one device is a matter of, forward and backward, by the roofline."""
    width = DTYPE_BYTES[dtype]
    forward = work(instance, typed.local_sizes, width)
    backward = backward_work(instance, needs_gradient, typed.local_sizes, width)
    return _limit(forward, dtype, machine), _limit(backward, dtype, machine)


def _limit(done: Work, dtype: str, machine: Machine) -> Limit:
    arithmetic, traffic = _parts(done, dtype, machine)
    if max(arithmetic, traffic) < machine.launch_seconds:
        return Limit.LAUNCH
    return Limit.ARITHMETIC if arithmetic > traffic else Limit.MEMORY


def price_statements(execution: Execution, kernels: int, machine: Machine) -> float:
    """Forward seconds of an operator's statements, without those of `kernels` that read its operands and write its
    results: the launches of the others, and what kernels write for each other and read again.
    """
    results = {tensor.storage for tensor in execution.outputs}
    between = sum(storage.bytes for storage in execution.built if storage not in results)
    launches = max(len(execution.built) - kernels, 0)
    return launches * machine.launch_seconds + machine.traffic_seconds(2 * between)


def price_inner(
    instance: Instance, typed: TypedOperator, dtype: str, mesh: Mesh, machine: Machine, gradient: bool
) -> float:
    """All-reduces of intermediates: forward where a result is reduced, backward where a copy is made of one tensor."""
    seconds = 0.0
    for collective in typed.inner:
        if isinstance(collective, InnerReduce):
            operand = instance.equations[collective.equation].target
        elif gradient:
            operand = instance.operand(collective.operand)
        else:
            continue
        count = prod(typed.local_sizes[axis] for axis in operand.axes) * DTYPE_BYTES[dtype]
        step = Step(StepKind.ALL_REDUCE, collective.axes)
        seconds += price_steps((step,), mesh, machine, 1.0).seconds(count)
    return seconds


def price_update(count: float, machine: Machine) -> float:
    """Seconds of the optimizer's step over that many local bytes of a parameter.

    AdamW reads the parameter, its gradient and two moments, and writes the parameter and the moments.
    """
    if machine.measured.update is not None:
        return float(machine.measured.update.at(count))
    return machine.traffic_seconds(UPDATE_PASSES * count)


UPDATE_PASSES = 7
MOMENTS = 2
"""What AdamW holds of a parameter besides its gradient."""
