"""A device's tasks of a plan's step, listed as a test says."""

from __future__ import annotations

from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine
from unity_dsl.simulation.iteration_turns import EVERY, Listed
from unity_dsl.simulation.step_tasks import as_simulated, device_tasks
from unity_dsl.simulation.task import TaskGraph
from unity_dsl.simulation.task_list import TaskList


def listed(plan: Plan, machine: Machine, library: Library, which: Listed = EVERY) -> tuple[TaskList, TaskGraph]:
    """What is listed, by default every iteration and every pass, and the graph of the step that follows from it. Raises
    NotAlikeError where what is listed does not stand for what is left out.
    """
    simulated, schedule, prices = as_simulated(plan, machine, library)
    tasks, held = device_tasks(simulated, schedule, prices, {}, which)
    return tasks, tasks.finished(held)
