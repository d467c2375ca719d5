"""Memory of a plan on each device: which gathered weights it keeps, and which segments it recomputes."""

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
"""Up to this number of segments, every set of them is tried."""


def counted(plan: Plan, budget: Budget) -> Plan:
    """The plan with its peak memory on a device."""
    return replace(plan, cost=replace(plan.cost, memory=budget.held(plan)))


def recomputing(plan: Plan, paths: Collection[str], machine: Machine, library: Library) -> Plan:
    """The plan with these segments recomputed in the backward pass, besides those that are already, and with the
    seconds that this takes. Its memory is not counted.
    """
    new = frozenset(paths) - plan.passes.recomputed
    return _running_again(plan, new, _prices_again(plan, machine, library)) if new else plan


def _prices_again(plan: Plan, machine: Machine, library: Library) -> Sequence[tuple[str, Cost]]:
    """Paths of segments, each with the cost of running it once more. A segment in iterations that differ occurs several
    times.
    """
    return tuple(forward_price(plan, machine, library).of_segments(plan.graph))


def _running_again(plan: Plan, paths: Collection[str], prices: Sequence[tuple[str, Cost]]) -> Plan:
    """`recomputing` for segments that the plan does not recompute yet."""
    cost = plan.cost
    for path, forward in prices:
        if path in paths:
            cost = added(cost, forward)
    return replace(plan.with_passes(recomputed=plan.passes.recomputed | frozenset(paths)), cost=cost)


def forward_price(plan: Plan, machine: Machine, library: Library) -> ForwardPrice:
    """Prices what a plan recomputes."""
    return ForwardPrice(ConversionModel(plan.mesh, machine, library))


def within_memory(plan: Plan, budget: Budget, segments: Sequence[str] = ()) -> Plan:
    """A plan that was counted, with a warning if it needs more memory than there is.

    If it fits only without some of the weights that it keeps gathered, these are re-gathered in the backward pass,
    chosen for the least time. It may also recompute some of these `segments`. The fastest way in which the plan fits is
    taken.
    """
    if not budget.fits(plan):
        plan = _fitting(plan, budget, segments) or plan
    return replace(plan, warnings=tuple(memory_warnings(plan.cost.memory, budget.machine)))


def _fitting(plan: Plan, budget: Budget, segments: Sequence[str]) -> Plan | None:
    """The fastest way in which a plan fits. Sets of segments are tried in the order of their cost, until one takes
    longer by itself than a way that fits.
    """
    new = [path for path in segments if path not in plan.passes.recomputed]
    prices = _prices_again(plan, budget.machine, budget.library) if new else ()
    ways = [_running_again(plan, paths, prices) if paths else plan for paths in _subsets(new)]
    best: Plan | None = None
    for way in sorted(ways, key=lambda way: way.cost.seconds):
        if best is not None and way.cost.seconds >= best.cost.seconds:
            break
        found = _regathered(way, budget, is_counted=way is plan)
        if found is not None and (best is None or found.cost.seconds < best.cost.seconds):
            best = found
    return best


def _subsets(segments: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every set of segments. If there are many: none, each one alone, and all of them."""
    if len(segments) <= MOST_SEGMENTS:
        for count in range(len(segments) + 1):
            yield from combinations(segments, count)
    else:
        yield from ((), *((segment,) for segment in segments), tuple(segments))


def least_held(plan: Plan, budget: Budget) -> float:
    """The peak memory of a device if every weight that can be were re-gathered."""
    again = gathered_paths(plan, budget.library)
    return (
        budget.held(plan.with_passes(regathered=again)).total
        if again - plan.passes.regathered
        else plan.cost.memory.total
    )


def gathered_paths(plan: Plan, library: Library) -> frozenset[str]:
    """The paths of weights that operators keep gathered for the backward pass, unless they are re-gathered."""
    return frozenset(kept.path for kept in kept_gathered(plan.graph, plan.mesh, library))


def _regathered(plan: Plan, budget: Budget, *, is_counted: bool) -> Plan | None:
    """The plan as it fits the memory, if necessary with weights re-gathered in the backward pass; None if it does not
    fit.
    """
    mesh, conversions = plan.mesh, ConversionModel(plan.mesh, budget.machine, budget.library, plan.model.gradient_bytes)
    seconds: dict[str, float] = {}
    freed: dict[str, float] = {}
    for kept in kept_gathered(plan.graph, mesh, budget.library):
        if not any(kept.path.startswith(f"{path}.") for path in plan.passes.recomputed):
            once = conversion_seconds(kept.planned, kept.layout, conversions)
            seconds[kept.path] = seconds.get(kept.path, 0.0) + kept.times * once
            freed[kept.path] = freed.get(kept.path, 0.0) + kept.bytes
    if budget.is_beyond(plan.with_passes(regathered=frozenset(seconds))):
        return None
    plan = plan if is_counted else counted(plan, budget)
    if budget.fits(plan):
        return plan
    needed = plan.cost.memory.total - budget.bytes
    while True:
        again = cheapest_of(seconds, freed, needed)
        memory = budget.held(plan.with_passes(regathered=again))
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
    return replace(plan.with_passes(regathered=again), cost=cost, notes=(*plan.notes, note))


def cheapest_of(seconds: Mapping[str, float], freed: Mapping[str, float], needed: float) -> frozenset[str]:
    """Weights that together free at least `needed` bytes in the least seconds, or all weights if they free less.

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
