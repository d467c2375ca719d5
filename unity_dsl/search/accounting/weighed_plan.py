"""What a plan holds on each device, and which gathered weights it keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...graph.plan import Plan
from ...index.library import Library
from ...machine.conversion_model import ConversionModel
from ...machine.machine import Machine
from .memory_prediction import kept_gathered, memory_warnings, predict_memory
from .plan_cost import conversion_seconds


def counted(plan: Plan, library: Library) -> Plan:
    """The plan with what it holds on each device, all gathered weights being kept for the backward pass."""
    memory = predict_memory(plan.model, plan.graph, plan.mesh, library)
    return replace(plan, cost=replace(plan.cost, memory=memory))


def within_memory(plan: Plan, machine: Machine, library: Library) -> Plan:
    """A plan that was counted; with a warning where it holds more than there is.

    Where there is room for it only without some of the weights that it keeps gathered, the backward pass gathers these
    again: those that take the least for it.
    """
    if plan.cost.memory.total > machine.memory_bytes:
        plan = _gathered_again(plan, machine, library)
    return replace(plan, warnings=tuple(memory_warnings(plan.cost.memory, machine)))


def least_held(plan: Plan, library: Library) -> float:
    """Bytes on each device where every weight that can be is gathered again."""
    again = {kept.path for kept in kept_gathered(plan.graph, plan.mesh, library)}
    return predict_memory(plan.model, plan.graph, plan.mesh, library, gathered_again=again).total


def _gathered_again(plan: Plan, machine: Machine, library: Library) -> Plan:
    """The plan with weights gathered once more in the backward pass, where it fits the machine's memory then."""
    mesh, conversions = plan.mesh, ConversionModel(plan.mesh, machine, library, plan.model.gradient_bytes)
    seconds: dict[str, float] = {}
    freed: dict[str, float] = {}
    for kept in kept_gathered(plan.graph, mesh, library):
        once = conversion_seconds(kept.planned, kept.layout, conversions)
        seconds[kept.path] = seconds.get(kept.path, 0.0) + kept.times * once
        freed[kept.path] = freed.get(kept.path, 0.0) + kept.bytes
    again = cheapest_of(seconds, freed, plan.cost.memory.total - machine.memory_bytes)
    memory = predict_memory(plan.model, plan.graph, mesh, library, gathered_again=again)
    if memory.total > machine.memory_bytes:
        return plan
    more = sum(seconds[path] for path in again)
    which = "gathered weights" if len(again) == len(seconds) else f"{len(again)} of {len(seconds)} gathered weights"
    note = (
        f"{which} are not kept for the backward pass, which gathers them again: "
        f"{(plan.cost.memory.total - memory.total) / 1e9:.3g} GB less a device, {more * 1e3:.3g} ms more a step"
    )
    cost = replace(plan.cost, communication=plan.cost.communication + more, memory=memory)
    return replace(plan, cost=cost, notes=(*plan.notes, note), gathered_again=again)


def cheapest_of(seconds: Mapping[str, float], freed: Mapping[str, float], needed: float) -> frozenset[str]:
    """Weights that together free at least `needed` bytes in the least seconds, or all where these do not.

    The knapsack problem, by dynamic programming over undominated sums (Nemhauser and Ullmann, Management Science 15,
    1969).
    """
    sums: list[tuple[float, float, frozenset[str]]] = [(0.0, 0.0, frozenset())]
    for path in seconds:
        more = [(time + seconds[path], min(needed, free + freed[path]), some | {path}) for time, free, some in sums]
        most, ordered = -1.0, sorted((*sums, *more), key=lambda one: (one[0], -one[1]))
        sums = []
        for one in ordered:
            if one[1] > most:
                most = one[1]
                sums.append(one)
    return sums[-1][2] if sums[-1][1] >= needed else frozenset(seconds)
