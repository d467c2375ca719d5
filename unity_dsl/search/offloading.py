"""Activation offloading: which segments keep what they save for backward in the host's memory, instead of being
recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from ..graph.graph import Model, Segment
from ..graph.plan import Plan
from ..machine.machine import Machine
from ..syntax.diagnostic import fail
from .accounting.kept_iterations import most_within, segment_words
from .accounting.memory_budget import Budget, memory_warnings
from .accounting.recomputation import added, outermost, segments
from .accounting.weighed_plan import counted, forward_price
from .recomputed_segments import ALL, AUTOMATIC, NONE, Recompute, parse_segments

RECOMPUTED = "recomputed in the backward pass"
"""The first words of the note on what a plan recomputes."""


def parse_offload(text: str, model: Model, machine: Machine) -> Recompute | None:
    """The segments that `layer,decoder:12` offloads to the host's memory, the latter in its first 12 iterations only;
    None where memory decides. Raises E324 where there is no such segment, no backward pass, or no link to the host.
    """
    if text in (AUTOMATIC, NONE):
        return None if text == AUTOMATIC else Recompute()
    if model.loss is None:
        raise fail("E324", f"`{model.name}` has no loss: nothing is saved for a backward pass")
    repeats = _repeats(model)
    if machine.collectives.host is None:
        raise fail(
            "E324", f"`{machine.name}` has no link to its host", help="a table [host] of the machine file has it"
        )
    return parse_segments(text, model, repeats, tuple(repeats) if text == ALL else (), "E324")


def with_offload(asked: Recompute | None, out: Recompute | None) -> tuple[Recompute | None, frozenset[str]]:
    """The segments that keep less on the device, recomputed or offloaded, and which of them are offloaded. Raises E324
    where both are asked of one segment.
    """
    if out is None or not out.paths:
        return asked, frozenset()
    again = Recompute() if asked is None else asked
    if both := again.paths & out.paths:
        raise fail("E324", f"`{min(both)}` is recomputed as well", help="leave it out of --recompute or of --offload")
    return Recompute(again.paths | out.paths, {**again.kept, **out.kept}), out.paths


def offloading(plan: Plan, paths: Collection[str], budget: Budget) -> Plan:
    """The plan that offloads to the host's memory what these segments save, instead of recomputing them. Its memory is
    counted, with a warning where a device has less.
    """
    if plan.passes.recomputed.isdisjoint(paths):
        return plan
    plan = counted(_offloading(plan, paths, budget), budget)
    return replace(_told(plan), warnings=tuple(memory_warnings(plan.cost.memory, budget.machine)))


def _offloading(plan: Plan, paths: Collection[str], budget: Budget) -> Plan:
    """The same with memory not counted. Its cost leaves out the seconds of what is no longer recomputed."""
    moved = plan.passes.recomputed & frozenset(paths)
    price = forward_price(plan, budget.machine.exposing(plan.exposed), budget.library)  # as its cost counts it
    cost, kept = plan.cost, {path: count for path, count in plan.passes.kept_iterations.items() if path in moved}
    for path, forward in price.of_segments(plan.graph):
        if path in moved:
            cost = added(cost, forward, -1.0)
    cost = added(cost, price.of_last(plan.graph, kept))
    passes = {"recomputed": plan.passes.recomputed - moved, "offloaded": plan.passes.offloaded | moved}
    return replace(plan.with_passes(**passes), cost=cost, simulated=None)


def offloaded_where_shorter(plan: Plan, budget: Budget, seconds: Callable[[Plan], float]) -> Plan:
    """The plan, or one that offloads what it recomputes, if that fits the memory and its simulated step is shorter. As
    many last iterations as there is room for are not offloaded. On a CPU the host's memory is the device's own.
    """
    repeats = _repeats(plan.model)
    paths = plan.passes.recomputed & repeats.keys()
    machine = budget.machine
    if not paths or machine.device == "cpu" or machine.collectives.host is None or plan.warnings:
        return plan
    others = {path: count for path, count in plan.passes.kept_iterations.items() if path not in paths}
    moved = counted(_offloading(plan, paths, budget).with_passes(kept_iterations=others), budget)
    if not budget.fits(moved):
        return plan
    for path in sorted(paths):
        keeping = partial(_keeping, moved, path)
        most = most_within(repeats[path].count - 1, partial(_held, budget, keeping), budget.bytes)
        moved = counted(keeping(most), budget) if most else moved
    return _told(moved) if seconds(moved) < seconds(plan) else plan


def _keeping(plan: Plan, path: str, count: int) -> Plan:
    """The plan in which the last `count` iterations of a segment keep everything on the device."""
    return plan.with_passes(kept_iterations={**plan.passes.kept_iterations, path: count})


def _held(budget: Budget, keeping: Callable[[int], Plan], count: int) -> float:
    return budget.held(keeping(count)).total


def _repeats(model: Model) -> dict[str, Segment]:
    """The loops that are in no other segment."""
    outer = outermost(model.graph)
    return {path: one for path, one in segments(model.graph) if path in outer and one.is_loop}


def _told(plan: Plan) -> Plan:
    """The plan with a note on what it offloads, in place of the note on what it recomputed."""
    words = segment_words(plan, plan.passes.offloaded, "`")
    note = f"offloaded to the host's memory: what {words} save for the backward pass"
    return replace(plan, notes=(*(one for one in plan.notes if not one.startswith(RECOMPUTED)), note))
