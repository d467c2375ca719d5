"""What a plan holds on each device: which gathered weights it keeps, and which segments it computes again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from ...graph.plan import Cost, Plan
from ...index.library import Library
from ...machine.byte_count import describe_bytes
from ...machine.conversion_model import ConversionModel
from ...machine.machine import Machine
from ...written_figures import duration
from .memory_budget import Budget, memory_warnings
from .memory_prediction import kept_gathered
from .plan_cost import conversion_seconds
from .recomputation import ForwardPrice, added

MOST_SEGMENTS = 4
"""Of how many segments every set is tried."""


def counted(plan: Plan, budget: Budget) -> Plan:
    """The plan with the most that it holds on a device."""
    return replace(plan, cost=replace(plan.cost, memory=budget.held(plan)))


def recomputing(plan: Plan, paths: Collection[str], machine: Machine, library: Library) -> Plan:
    """The plan with the backward pass running these segments again, besides those that it does already, and with the
    seconds of that; what it holds is not counted.
    """
    new = frozenset(paths) - plan.passes.recomputed
    return _running_again(plan, new, _prices_again(plan, machine, library)) if new else plan


def _prices_again(plan: Plan, machine: Machine, library: Library) -> Sequence[tuple[str, Cost]]:
    """Paths of segments, and what it takes to run them once more: of one in iterations that differ several times."""
    return tuple(forward_price(plan, machine, library).of_segments(plan.graph))


def _running_again(plan: Plan, paths: Collection[str], prices: Sequence[tuple[str, Cost]]) -> Plan:
    """`recomputing` of segments that the plan does not run again yet."""
    cost = plan.cost
    for path, forward in prices:
        if path in paths:
            cost = added(cost, forward)
    return replace(plan.with_passes(recomputed=plan.passes.recomputed | frozenset(paths)), cost=cost)


def forward_price(plan: Plan, machine: Machine, library: Library) -> ForwardPrice:
    """Prices what a plan runs again."""
    return ForwardPrice(ConversionModel(plan.mesh, machine, library))


def within_memory(plan: Plan, budget: Budget, segments: Sequence[str] = ()) -> Plan:
    """A plan that was counted; with a warning where it holds more than there is.

    Where there is room for it only without some of the weights that it keeps gathered, the backward pass gathers these
    again: those that take the least for it. It may also run some of these `segments` again; of the ways in which the
    plan fits the one of the fewest seconds is taken.
    """
    if not budget.fits(plan):
        plan = _fitting(plan, budget, segments) or plan
    return replace(plan, warnings=tuple(memory_warnings(plan.cost.memory, budget.machine)))


def _fitting(plan: Plan, budget: Budget, segments: Sequence[str]) -> Plan | None:
    """Of the ways in which a plan fits, the one of the fewest seconds. Sets of segments are looked at in the order of
    what they take, and none that takes longer by itself than a way that fits.
    """
    new = [path for path in segments if path not in plan.passes.recomputed]
    prices = _prices_again(plan, budget.machine, budget.library) if new else ()
    ways = [_running_again(plan, paths, prices) if paths else plan for paths in _subsets(new)]
    best: Plan | None = None
    for way in sorted(ways, key=lambda way: way.cost.seconds):
        if best is not None and way.cost.seconds >= best.cost.seconds:
            break
        found = _gathered_again(way, budget, is_counted=way is plan)
        if found is not None and (best is None or found.cost.seconds < best.cost.seconds):
            best = found
    return best


def _subsets(segments: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every set of segments; where there are many, all of them or one."""
    if len(segments) <= MOST_SEGMENTS:
        for count in range(len(segments) + 1):
            yield from combinations(segments, count)
    else:
        yield from ((), *((segment,) for segment in segments), tuple(segments))


def least_held(plan: Plan, budget: Budget) -> float:
    """The most bytes on a device, were every weight that can be gathered again."""
    again = gathered_paths(plan, budget.library)
    return (
        budget.held(plan.with_passes(gathered_again=again)).total
        if again - plan.passes.gathered_again
        else plan.cost.memory.total
    )


def gathered_paths(plan: Plan, library: Library) -> frozenset[str]:
    """The paths of weights that operators keep gathered for the backward pass, unless they are gathered again."""
    return frozenset(kept.path for kept in kept_gathered(plan.graph, plan.mesh, library))


def _gathered_again(plan: Plan, budget: Budget, *, is_counted: bool) -> Plan | None:
    """The plan as it fits the memory, if need be with weights gathered once more in the backward pass."""
    mesh, conversions = plan.mesh, ConversionModel(plan.mesh, budget.machine, budget.library, plan.model.gradient_bytes)
    seconds: dict[str, float] = {}
    freed: dict[str, float] = {}
    for kept in kept_gathered(plan.graph, mesh, budget.library):
        if not any(kept.path.startswith(f"{path}.") for path in plan.passes.recomputed):
            once = conversion_seconds(kept.planned, kept.layout, conversions)
            seconds[kept.path] = seconds.get(kept.path, 0.0) + kept.times * once
            freed[kept.path] = freed.get(kept.path, 0.0) + kept.bytes
    if budget.is_beyond(plan.with_passes(gathered_again=frozenset(seconds))):
        return None
    plan = plan if is_counted else counted(plan, budget)
    if budget.fits(plan):
        return plan
    needed = plan.cost.memory.total - budget.bytes
    while True:
        again = cheapest_of(seconds, freed, needed)
        memory = budget.held(plan.with_passes(gathered_again=again))
        if memory.total <= budget.bytes:
            break
        if len(again) == len(seconds):
            return None
        needed = max(sum(freed[path] for path in again), needed) + memory.total - budget.bytes
    more = sum(seconds[path] for path in again)
    which = "gathered weights" if len(again) == len(seconds) else f"{len(again)} of {len(seconds)} gathered weights"
    note = (
        f"{which} are resharded after the forward pass and re-gathered in the backward pass: "
        f"{describe_bytes(plan.cost.memory.total - memory.total)} less a device, {duration(more)} more a step"
    )
    cost = replace(plan.cost, communication=plan.cost.communication + more, memory=memory)
    return replace(plan.with_passes(gathered_again=again), cost=cost, notes=(*plan.notes, note))


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
