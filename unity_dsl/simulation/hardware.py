"""The properties of a machine that a simulation uses: who issues kernels, and how collectives slow them down."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine.machine import Machine


@dataclass(frozen=True)
class Hardware:
    """How a device runs tasks.

    The host takes `launch_seconds` to issue a kernel or a collective. If `host_computes`, as on a CPU, the thread that
    issues kernels also runs them, and launches add to their time. Otherwise it issues them ahead. While a collective
    runs, kernels of the device lose the fraction `slowdown` of their speed, 0 to 1.
    """

    launch_seconds: float
    host_computes: bool = False
    slowdown: float = 0.0


def hardware_of(machine: Machine) -> Hardware:
    """The properties of a machine's devices."""
    return Hardware(machine.launch_seconds, machine.device == "cpu", machine.collectives.overlap_slowdown)
