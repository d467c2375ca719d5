"""Steps in which the devices wait for the host to launch kernels (a note for the user)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..graph.plan import Advice, Plan
from ..index.library import Library
from ..machine.machine import Machine
from ..simulation.step_tasks import simulate_step
from ..simulation.timeline import HOST, Timeline
from ..written_figures import duration

LEAST_TOLD = 0.1
"""Smallest fraction of a step that a note tells."""


def launch_notes(plan: Plan, timeline: Timeline, machine: Machine, library: Library) -> Iterator[str]:
    """A note on how long the simulated step would take without launches, if that is much less, and how to launch fewer
    kernels.
    """
    if machine.device == "cpu" or timeline.busy.get((0, HOST), 0.0) < LEAST_TOLD * timeline.seconds:
        return
    without = simulate_step(plan, replace(machine, launch_seconds=AT_ONCE), library).seconds
    if timeline.seconds - without >= LEAST_TOLD * timeline.seconds:
        options = "`train.py --compile` launches fewer"
        if plan.mesh.size == 1:
            options = f"{options}, `--cuda-graphs` all at once"
        yield Advice(
            f"devices wait for the host to launch kernels: without that the step would take {duration(without)} in "
            f"place of {duration(timeline.seconds)}; {options}"
        )


AT_ONCE = 1e-9
"""Seconds of a launch that takes practically no time."""
