"""The peak memory of a device in a plan's step, computed from as few of its tasks as possible."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph.layout_conversion import BUCKET_MIB
from ..graph.placed_order import different_places
from ..graph.plan import Plan
from ..index.library import Library
from ..machine.machine import Machine
from .listed_iterations import FULL, PASSES, Listed
from .step_tasks import as_simulated, device_tasks
from .task_list import HeldMost


def most_held(plan: Plan, machine: Machine, library: Library) -> tuple[HeldMost, Mapping[int, int]]:
    """The peak memory of a device in a step, and the device's coordinates along the mesh axes on which devices do
    different things. It is the peak of the tasks of `step_tasks`. If it is large, iterations and micro-batches that
    repeat others are left out, because the buckets that gradients of several fill are small in comparison. The
    threshold grows with the bucket size.
    """
    plan, schedule, prices = as_simulated(plan, machine, library)
    full, found = FULL * max(1.0, plan.passes.bucket_mib / BUCKET_MIB), []
    for place in different_places(plan.graph, plan.mesh):
        tasks, held = device_tasks(plan, schedule, prices, place, Listed(brief=True))
        most = tasks.most(held)
        if most.bytes < full and (tasks.abridged or plan.micro_batches > PASSES):
            tasks, held = device_tasks(plan, schedule, prices, place)
            most = tasks.most(held)
        found.append((most, place))
    return max(found, key=lambda most: most[0].bytes)
