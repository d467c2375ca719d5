"""How many iterations of the segments that a plan runs again are kept instead: as many as there is room for.

What runs a whole segment again leaves room that is a part of what one iteration keeps, or of many: the last iterations
need not be run again then. The backward pass comes to these first, and what they keep is gone before it runs another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from ...graph.plan import Plan
from ...index.library import Library
from ...machine.byte_count import describe_bytes
from ...machine.machine import Machine
from ...simulation.step_tasks import step_tasks
from .memory_prediction import kept_gathered, memory_warnings, predict_memory
from .recomputation import added, segments
from .weighed_plan import forward_price, held_memory


def keeping_iterations(plan: Plan, iterations: Mapping[str, int], machine: Machine, library: Library) -> Plan:
    """The plan with so many last iterations of segments that it runs again kept as they are, of a plan that keeps none
    so. Weights that they gather are gathered again. What it holds is counted, with a warning where that is more than
    there is.
    """
    kept = {path: count for path, count in iterations.items() if count and path in plan.recomputed}
    if not kept:
        return plan
    less = forward_price(plan, machine, library).of_last(plan.graph, kept)
    again = plan.gathered_again | _inside(_gathered(plan, library), kept)
    plan = replace(plan, cost=added(plan.cost, less, -1.0), kept_iterations=kept, gathered_again=again)
    memory = held_memory(plan, library, again)
    warnings = tuple(memory_warnings(memory, machine))
    return replace(plan, cost=replace(plan.cost, memory=memory), warnings=warnings)


def _gathered(plan: Plan, library: Library) -> frozenset[str]:
    """The paths of weights that operators keep gathered for the backward pass."""
    return frozenset(one.path for one in kept_gathered(plan.graph, plan.mesh, library))


def _inside(paths: frozenset[str], kept: Collection[str]) -> frozenset[str]:
    """The paths that are inside of these segments."""
    return frozenset(path for path in paths if path.startswith(tuple(f"{segment}." for segment in kept)))


def with_room_used(plan: Plan, machine: Machine, library: Library) -> Plan:
    """A plan that fits the memory with as few iterations run again as the room that is left allows: of the segments
    that take the longest first, by bisection. What the tasks of its step hold besides what is predicted stays free.
    """
    if not plan.recomputed or plan.kept_iterations or plan.cost.memory.total > machine.memory_bytes:
        return plan
    besides = max(0.0, step_tasks(plan, machine, library).peak().bytes - plan.cost.memory.total)
    room = machine.memory_bytes - besides
    counts = {path: segment.count for path, segment in segments(plan.model.graph) if path in plan.recomputed}
    seconds = {path: cost.seconds for path, cost in forward_price(plan, machine, library).of_segments(plan.graph)}
    gathered, chosen = _gathered(plan, library), dict[str, int]()

    def fits_with(kept: Mapping[str, int]) -> bool:
        again = plan.gathered_again | _inside(gathered, kept)
        return held_memory(replace(plan, kept_iterations=kept), library, again).total <= room

    for path in sorted(counts, key=lambda path: (-seconds[path], path)):
        fits, exceeds = 0, counts[path]
        while fits + 1 < exceeds:
            middle = (fits + exceeds) // 2
            if fits_with({**chosen, path: middle}):
                fits = middle
            else:
                exceeds = middle
        chosen |= {path: fits} if fits else {}
    return keeping_iterations(plan, chosen, machine, library)


def told_kept(
    plan: Plan,
    iterations: Mapping[str, int] | None,
    machine: Machine,
    library: Library,
    referee: Callable[[Plan], float] | None = None,
) -> Plan:
    """The plan with so many last iterations kept of what it runs again, or, if None, as many as there is room for,
    unless the referee gives none fewer seconds; with a note on what is run again.
    """
    if iterations is not None:
        kept = keeping_iterations(plan, iterations, machine, library)
    else:
        kept = with_room_used(plan, machine, library)
        if kept is not plan and referee is not None and referee(plan) < referee(kept):
            kept = plan
    return replace(kept, notes=(*kept.notes, *describe_recomputed(kept, machine, library)))


def describe_recomputed(plan: Plan, machine: Machine, library: Library) -> Iterator[str]:
    """What running segments again saves and costs."""
    if plan.recomputed:
        kept = predict_memory(plan.model, plan.graph, plan.mesh, library, gathered_again=plan.gathered_again)
        price = forward_price(plan, machine, library)
        more = sum(forward.seconds for path, forward in price.of_segments(plan.graph) if path in plan.recomputed)
        more -= price.of_last(plan.graph, plan.kept_iterations).seconds
        freed = kept.total - plan.cost.memory.total
        yield (
            f"recomputed in the backward pass: {recomputed_words(plan, '`')}, of which an iteration keeps only what "
            f"enters it; {describe_bytes(abs(freed))} {'less' if freed >= 0 else 'more'} a device, "
            f"{more * 1e3:.3g} ms more a step"
        )


def recomputed_words(plan: Plan, mark: str = "") -> str:
    """The segments that are run again, their names between marks, with how many of their iterations where these are not
    all.
    """
    counts = {path: segment.count for path, segment in segments(plan.model.graph)}
    return ", ".join(
        f"{mark}{path}{mark}"
        + (f" (the first {plan.run_again(path, counts[path])} of {counts[path]})" * (path in plan.kept_iterations))
        for path in sorted(plan.recomputed)
    )
