"""Seconds of a loop besides its iterations: for gradients of values that all iterations read, and for slices.

The backward pass of each iteration but the last one adds its gradient of a captured value to the sum so far. Slices of
a tensor are views of it, and their gradients are joined. Slices that a loop makes are joined in the forward pass.
"""

from __future__ import annotations

from ...graph.graph import Segment, Value
from ...machine.collective_price import local_price
from ...machine.machine import Machine
from ...machine.operator_price import price_accumulation


def price_captured(segment: Segment, value: Value, held: float, machine: Machine) -> float:
    """Price of accumulating the gradient of a value that every iteration reads. A device holds the fraction `held`."""
    if segment.predicate is not None or not value.needs_gradient:
        return 0.0
    return (segment.count - 1) * price_accumulation(value.bytes * held, machine)


def price_sliced(whole: Value, held: float, machine: Machine) -> float:
    """Price of joining the gradients of a tensor that is read slice by slice. A device holds the fraction `held`."""
    return price_stacked(whole, held, machine) if whole.needs_gradient else 0.0


def price_stacked(whole: Value, held: float, machine: Machine) -> float:
    """Price of joining the slices that make a tensor. A device holds the fraction `held`."""
    return local_price(machine, 2).seconds(whole.bytes * held)
