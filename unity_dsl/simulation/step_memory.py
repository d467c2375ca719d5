"""The most that a device holds in a plan's step, from as few of its tasks as tell it."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph.layout_conversion import BUCKET_MIB
from ..graph.placed_order import different_places
from ..graph.plan import Plan
from ..index.library import Library
from ..machine.machine import Machine
from .iteration_turns import FULL, PASSES, Listed
from .step_tasks import as_simulated, device_tasks
from .task_list import HeldMost


def most_held(plan: Plan, machine: Machine, library: Library) -> tuple[HeldMost, Mapping[int, int]]:
    """The most that a device holds in a step, with its coordinates along the mesh axes on which devices do different
    things: that of the tasks of `step_tasks`. Where it is much, those of iterations and micro-batches like others are
    left out: buckets that gradients of several fill are small beside it, unless they are large.
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
