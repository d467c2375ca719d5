"""What a plan holds on each device, and whether it keeps gathered weights for the backward pass."""

from __future__ import annotations

from dataclasses import replace

from ...graph.plan import Memory, Plan
from ...graph.precision import is_mixed
from ...index.library import Library
from ...machine.conversion_model import ConversionModel
from ...machine.machine import Machine
from .memory_prediction import kept_gathered, memory_warnings, predict_memory
from .plan_cost import conversion_seconds


def weighed(plan: Plan, machine: Machine, library: Library) -> Plan:
    """The plan with what it holds on each device, and a warning where that is more than there is.

    Gathered weights are kept for the backward pass, unless there is room for the plan without them alone.
    """
    memory = predict_memory(plan.model, plan.graph, plan.mesh, library)
    if memory.total > machine.memory_bytes:
        plan, memory = _gathered_again(plan, memory, machine, library)
    cost = replace(plan.cost, memory=memory)
    return replace(plan, cost=cost, warnings=tuple(memory_warnings(memory, machine)))


def _gathered_again(plan: Plan, memory: Memory, machine: Machine, library: Library) -> tuple[Plan, Memory]:
    """The plan with weights gathered once more in the backward pass, where it fits the machine's memory then."""
    mesh, conversions = plan.mesh, ConversionModel(plan.mesh, machine, library)
    less = predict_memory(plan.model, plan.graph, mesh, library, gathered_again=True)
    if less.total > machine.memory_bytes:
        return plan, memory
    again = kept_gathered(plan.graph, mesh, library, is_mixed(plan.model))
    seconds = sum(times * conversion_seconds(kept, layout, conversions) for kept, layout, times in again)
    note = (
        f"gathered weights are not kept for the backward pass, which gathers them again: "
        f"{(memory.total - less.total) / 1e9:.3g} GB less a device, {seconds * 1e3:.3g} ms more a step"
    )
    cost = replace(plan.cost, communication=plan.cost.communication + seconds)
    return replace(plan, cost=cost, notes=(*plan.notes, note), gathered_again=True), less
