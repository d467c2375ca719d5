"""Keeps some iterations of recomputed segments, as far as memory allows (partial activation checkpointing).

A plan that recomputes a whole segment may leave memory unused, enough for what some of its iterations save. The last
iterations are then not recomputed. The backward pass reaches these first, and frees what they saved before it
recomputes another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial

from ...graph.plan import Plan
from ...machine.byte_count import describe_bytes
from ...written_figures import duration
from .memory_budget import Budget, memory_warnings
from .recomputation import added, segments
from .weighed_plan import counted, forward_price, gathered_paths


def keeping_iterations(plan: Plan, iterations: Mapping[str, int], budget: Budget) -> Plan:
    """The plan with the given numbers of last iterations of its recomputed segments kept. The given plan keeps none.
    Weights that these iterations gather are re-gathered. The memory is counted, with a warning if there is less on a
    device.
    """
    kept = {path: count for path, count in iterations.items() if count and path in plan.passes.recomputed}
    if not kept:
        return plan
    less = forward_price(plan, budget.machine, budget.library).of_last(plan.graph, kept)
    again = plan.passes.regathered | _inside(gathered_paths(plan, budget.library), kept)
    plan = replace(plan.with_passes(kept_iterations=kept, regathered=again), cost=added(plan.cost, less, -1.0))
    memory = budget.held(plan)
    warnings = tuple(memory_warnings(memory, budget.machine))
    return replace(plan, cost=replace(plan.cost, memory=memory), warnings=warnings)


def _inside(paths: frozenset[str], kept: Collection[str]) -> frozenset[str]:
    """The paths that are inside these segments."""
    return frozenset(path for path in paths if path.startswith(tuple(f"{segment}." for segment in kept)))


def with_room_used(plan: Plan, budget: Budget) -> Plan:
    """A plan that fits the memory, with as few recomputed iterations as the remaining memory allows. Segments whose
    forward takes longest come first. A segment whose iterations all fit is no longer recomputed.
    """
    if not plan.passes.recomputed or plan.passes.kept_iterations or not budget.fits(plan):
        return plan
    machine, library = budget.machine, budget.library
    counts = {path: segment.count for path, segment in segments(plan.model.graph) if path in plan.passes.recomputed}
    seconds = {path: cost.seconds for path, cost in forward_price(plan, machine, library).of_segments(plan.graph)}
    gathered, chosen = gathered_paths(plan, library), dict[str, int]()

    def held(path: str, number: int) -> float:
        kept = {**chosen, path: number}
        again = plan.passes.regathered | _inside(gathered, kept)
        return budget.held(_without_whole(plan.with_passes(kept_iterations=kept, regathered=again), counts)).total

    for path in sorted(counts, key=lambda path: (-seconds[path], path)):
        found = most_within(counts[path], partial(held, path), budget.bytes)
        chosen |= {path: found} if found else {}
    kept = keeping_iterations(plan, chosen, budget)
    whole = _without_whole(kept, counts)
    return kept if whole is kept else counted(whole, budget)


def _without_whole(plan: Plan, counts: Mapping[str, int]) -> Plan:
    """The plan without recomputation of segments whose iterations it keeps all."""
    whole = {path for path, count in plan.passes.kept_iterations.items() if count == counts[path]}
    kept = {path: count for path, count in plan.passes.kept_iterations.items() if path not in whole}
    return plan.with_passes(recomputed=plan.passes.recomputed - whole, kept_iterations=kept) if whole else plan


def shadow_price_of_memory(plan: Plan, budget: Budget) -> float:
    """The shadow price of memory for a plan that recomputes segments, in seconds per byte. With more memory fewer
    iterations are recomputed, although the weights that they gather are re-gathered. 0 where recomputation frees
    nothing.
    """
    counts = {path: segment.count for path, segment in segments(plan.model.graph) if path in plan.passes.recomputed}
    less = forward_price(plan, budget.machine, budget.library).of_last(plan.graph, counts)
    freed = budget.held_if_kept(plan).total - budget.held(plan).total
    return less.seconds / freed if freed > 0 else 0.0


def most_within(most: int, held: Callable[[int], float], limit: float) -> int:
    """The largest number, up to `most`, for which `held` is within a limit. `held` is within it at 0, and grows with
    the number, nearly evenly. Alternates interpolation and bisection.
    """
    low, high = (0, held(0)), (most, held(most) if most else limit)
    if high[1] <= limit:
        return most
    tries = 0
    while low[0] + 1 < high[0]:
        between = (limit - low[1]) / (high[1] - low[1]) if tries % 3 < 2 else 0.5
        middle = min(max(low[0] + int(between * (high[0] - low[0])), low[0] + 1), high[0] - 1)
        found = middle, held(middle)
        low, high = (found, high) if found[1] <= limit else (low, found)
        tries += 1
    return low[0]


def with_iterations_kept(plan: Plan, iterations: Mapping[str, int] | None, budget: Budget) -> Plan:
    """The plan with the given numbers of last iterations of recomputed segments kept; if None, with the most for which
    there is memory. A note says what is recomputed.
    """
    kept = with_room_used(plan, budget) if iterations is None else keeping_iterations(plan, iterations, budget)
    return replace(kept, notes=(*kept.notes, *describe_recomputed(kept, budget)))


def describe_recomputed(plan: Plan, budget: Budget) -> Iterator[str]:
    """A note on what recomputation saves and costs."""
    if plan.passes.recomputed:
        kept = budget.held_if_kept(plan)
        price = forward_price(plan, budget.machine, budget.library)
        more = sum(forward.seconds for path, forward in price.of_segments(plan.graph) if path in plan.passes.recomputed)
        more -= price.of_last(plan.graph, plan.passes.kept_iterations).seconds
        freed = kept.total - plan.cost.memory.total
        yield (
            f"recomputed in the backward pass: {recomputed_words(plan, '`')}, of which an iteration keeps only what "
            f"enters it; {describe_bytes(abs(freed))} {'less' if freed >= 0 else 'more'} a device, "
            f"{duration(more)} more a step"
        )


def recomputed_words(plan: Plan, mark: str = "") -> str:
    """The names of the recomputed segments, between marks."""
    return segment_words(plan, plan.passes.recomputed, mark)


def segment_words(plan: Plan, paths: Collection[str], mark: str = "") -> str:
    """Segments by name, with the number of first iterations that are meant where these are not all."""
    counts, kept = {path: segment.count for path, segment in segments(plan.model.graph)}, plan.passes.kept_iterations
    return ", ".join(
        f"{mark}{path}{mark}" + (f" (the first {counts[path] - kept.get(path, 0)} of {counts[path]})" * (path in kept))
        for path in sorted(paths)
    )
