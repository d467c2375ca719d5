"""Machines with the figures of their datasheets, for tests whose models were chosen at those prices."""

from __future__ import annotations

from dataclasses import replace

from unity_dsl.machine.machine import Collectives, Machine, load_machine
from unity_dsl.machine.measured_operators import MeasuredOperators

LAUNCH = {"dgx-a100": 6e-6, "dgx-h100": 6e-6, "summit": 7e-6}


def by_datasheet(name: str) -> Machine:
    """A shipped machine without measured kernels, with short launches and collectives that do not slow kernels down."""
    machine = load_machine(name)
    collectives: Collectives = replace(machine.collectives, overlap_slowdown=0.0)
    return replace(machine, measured=MeasuredOperators(), launch_seconds=LAUNCH[name], collectives=collectives)
