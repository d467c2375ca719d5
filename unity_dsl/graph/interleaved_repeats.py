"""Interleaved execution of independent repeats: one computes while values of another are communicated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, groupby

from .graph import Graph, Node, Segment
from .layout_conversion import Conversions
from .plan import Plan, PlannedGraph, PlannedSegment

Interleaved = tuple[tuple[str, ...], ...]
"""Sets of repeats of a model whose iterations are interleaved, by their names."""


def independent_repeats(plan: Plan) -> Interleaved:
    """The sets of a model's repeats that can be interleaved: they have the same number of iterations and do not depend
    on each other, and at least one converts values by collectives. Each repeat, in the model's order, joins the first
    set that it fits in. Recomputed repeats and repeats with bodies inside are in none.
    """
    found: list[list[PlannedSegment]] = []
    for step in _plain_repeats(plan):
        for known in found:
            if known[0].segment.count == step.segment.count and _fits(plan.graph.graph, found, known, step):
                known.append(step)
                break
        else:
            found.append([step])
    sets = (steps for steps in found if len(steps) > 1 and any(_travels(step, plan.conversions) for step in steps))
    return tuple(tuple(step.segment.name for step in steps) for steps in sets)


def interleavable_repeats(graph: Graph) -> frozenset[str]:
    """The names of a model's repeats that can be interleaved with another one, as far as the model allows."""
    plain = [segment for segment in graph.segments if _is_plain(segment)]
    alike = [(one, other) for one, other in combinations(plain, 2) if one.count == other.count]
    found = ((one.name, other.name) for one, other in alike if _order(graph, [(one.name, other.name)]) is not None)
    return frozenset(name for names in found for name in names)


def side_by_side(plan: Plan, interleaved: Interleaved) -> Plan:
    """The plan with the repeats of each set next to each other. Other steps keep their order if possible (Kahn's
    topological order of the graph in which a set is one vertex). Raises ValueError for sets that cannot be interleaved.
    """
    graph, plain = plan.graph, {step.segment.name: step.segment.count for step in _plain_repeats(plan)}
    if any(len({plain.get(name, 0) for name in names}) != 1 or names[0] not in plain for names in interleaved):
        raise ValueError("interleaved repeats have one number of iterations each, and nothing but operators")
    order = _order(graph.graph, interleaved)
    if order is None:
        raise ValueError("interleaved repeats need each other")
    steps = graph.graph.steps
    ordered = replace(graph.graph, steps=tuple(steps[number] for number in order))
    graph = replace(graph, graph=ordered, steps=tuple(graph.steps[number] for number in order))
    return replace(plan.with_passes(interleaved=interleaved), graph=graph)


def in_model_order(plan: Plan) -> PlannedGraph:
    """The plan's graph with its steps in the order of the model."""
    if not plan.passes.interleaved:
        return plan.graph
    place = {id(step): number for number, step in enumerate(plan.model.graph.steps)}
    pairs = zip(plan.graph.graph.steps, plan.graph.steps, strict=True)
    steps = [planned for _, planned in sorted(pairs, key=lambda pair: place[id(pair[0])])]
    return replace(plan.graph, graph=plan.model.graph, steps=tuple(steps))


def interleaved_groups(steps: Iterable[PlannedSegment], interleaved: Interleaved) -> Iterator[list[PlannedSegment]]:
    """Groups of successive bodies: those of a set together, others alone."""
    member = {name: number for number, names in enumerate(interleaved) for name in names}
    for number, same in groupby(steps, lambda step: member.get(step.segment.name)):
        if number is None:
            yield from ([step] for step in same)
        else:
            yield list(same)


def stretches(steps: Sequence[PlannedSegment], around: PlannedGraph) -> Iterator[range]:
    """Ranges of iterations within which every repeat takes carried values in the layouts in which it left them."""
    first, count = 0, steps[0].segment.count
    for iteration in range(1, count):
        if not all(_goes_on(step, iteration, around) for step in steps):
            yield range(first, iteration)
            first = iteration
    yield range(first, count)


def start_delays(count: int, skew: int) -> tuple[int, ...]:
    """The skewed start of `count` interleaved repeats: by how many rounds each begins late. The last one begins at
    once, each one before it a round later, in cycles of `skew` repeats. Some then send their results while others
    compute. With a `skew` of 1 all compute, and then all send.
    """
    return tuple((count - 1 - place) % skew for place in range(count))


def run_number(step: PlannedSegment, iteration: int) -> int:
    """The number of the run that has an iteration."""
    return sum(run.first <= iteration for run in step.runs) - 1


def _goes_on(step: PlannedSegment, iteration: int, around: PlannedGraph) -> bool:
    number = run_number(step, iteration)
    return number == run_number(step, iteration - 1) or step.goes_on(number, around)


def _plain_repeats(plan: Plan) -> Iterator[PlannedSegment]:
    for step in plan.graph.steps:
        if (
            isinstance(step, PlannedSegment)
            and _is_plain(step.segment)
            and step.segment.name not in plan.passes.recomputed
        ):
            if not any(node.placement for run in step.runs for node in run.body.nodes()):
                yield step


def _is_plain(segment: Segment) -> bool:
    """Whether a repeat has nothing but operators, weights of its own, and values that it carries or sees outside."""
    body, crossing = segment.body, segment.sliced or segment.stacked or segment.predicate is not None
    if crossing or not segment.results or body.updates or not body.weights:
        return False
    return all(isinstance(step, Node) for step in body.steps)


def _fits(
    graph: Graph, found: Sequence[list[PlannedSegment]], known: list[PlannedSegment], step: PlannedSegment
) -> bool:
    """Whether a repeat can join a `known` set, given all sets `found`."""
    sets = ([*steps, step] if steps is known else steps for steps in found)
    return _order(graph, [[step.segment.name for step in steps] for steps in sets]) is not None


def _travels(step: PlannedSegment, conversions: Conversions) -> bool:
    """Whether values of a body are converted by collectives that can be asynchronous."""
    return any(
        conversions.conversion(made.source, made.layout, planned.value.shape, planned.value.bytes).travels
        for run in step.runs
        for planned in run.body.values.values()
        if not planned.value.is_weight
        for made in planned.materialised
    )


def _order(graph: Graph, sets: Iterable[Sequence[str]]) -> list[int] | None:
    """The numbers of the steps with each set together; None if one of a set depends on another, directly or not."""
    steps = graph.steps
    leader = {name: names[0] for names in sets for name in names}
    units: dict[str, list[int]] = {}
    makers: dict[str, str] = {}
    for number, step in enumerate(steps):
        unit = leader.get(step.name, step.name) if isinstance(step, Segment) else f"operator {number}"
        units.setdefault(unit, []).append(number)
        makers |= {value.name: unit for value in step.makes}
    waits = {
        unit: {makers[value.name] for number in numbers for value in steps[number].reads if value.name in makers}
        for unit, numbers in units.items()
    }
    order: list[int] = []
    while units:
        ready = next((unit for unit in units if waits[unit].isdisjoint(units)), None)
        if ready is None:
            return None
        order += units.pop(ready)
    return order
