"""A device's tasks of a plan's step, for a given selection of iterations and passes."""

from __future__ import annotations

from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine
from unity_dsl.simulation.listed_iterations import EVERY, Listed
from unity_dsl.simulation.step_tasks import as_simulated, device_tasks
from unity_dsl.simulation.task import TaskGraph
from unity_dsl.simulation.task_list import TaskList


def listed(plan: Plan, machine: Machine, library: Library, which: Listed = EVERY) -> tuple[TaskList, TaskGraph]:
    """The listed tasks, by default those of every iteration and every pass, and the graph of the step built from them.
    Raises NotAlikeError if the listed tasks do not represent those that are left out.
    """
    simulated, schedule, prices = as_simulated(plan, machine, library)
    tasks, held = device_tasks(simulated, schedule, prices, {}, which)
    return tasks, tasks.finished(held)
