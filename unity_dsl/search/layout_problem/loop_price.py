"""Seconds that a loop takes besides its iterations: for the gradients of what all of them read, and for its slices.

The backward pass of each iteration but the last one adds its gradient of a captured value to the sum so far. Slices of
a tensor are views of it, and their gradients are put together; slices that a loop makes are put together as they are.
"""

from __future__ import annotations

from ...graph.graph import Segment, Value
from ...machine.collective_price import local_price
from ...machine.machine import Machine
from ...machine.operator_price import price_accumulation


def price_captured(segment: Segment, value: Value, held: float, machine: Machine) -> float:
    """Of a value that every iteration reads, of which a device has the fraction `held` then."""
    if segment.predicate is not None or not value.needs_gradient:
        return 0.0
    return (segment.count - 1) * price_accumulation(value.bytes * held, machine)


def price_sliced(whole: Value, held: float, machine: Machine) -> float:
    """Of a tensor that is read slice by slice, of which a device has the fraction `held`."""
    return price_stacked(whole, held, machine) if whole.needs_gradient else 0.0


def price_stacked(whole: Value, held: float, machine: Machine) -> float:
    """Of a tensor that is made of slices, of which a device has the fraction `held`."""
    return local_price(machine, 2).seconds(whole.bytes * held)
