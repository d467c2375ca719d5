"""Repeats that do not need each other, whose iterations run in turns: while values of one travel, another computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, groupby

from .graph import Graph, Node, Segment
from .layout_conversion import Conversions
from .plan import Plan, PlannedGraph, PlannedSegment

Interleaved = tuple[tuple[str, ...], ...]
"""Sets of repeats of a model whose iterations run in turns, by their names."""


def independent_repeats(plan: Plan) -> Interleaved:
    """Largest sets of a model's repeats that have as many iterations, none of which needs another, and some of which
    convert values by collectives: each repeat, in the model's order, is of the first set that it fits in. Those that
    are run again or have bodies of their own are in none.
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


def repeats_in_turns(graph: Graph) -> frozenset[str]:
    """The names of a model's repeats that may run in turns with another one, whatever their plan is."""
    plain = [segment for segment in graph.segments if _is_plain(segment)]
    alike = [(one, other) for one, other in combinations(plain, 2) if one.count == other.count]
    found = ((one.name, other.name) for one, other in alike if _order(graph, [(one.name, other.name)]) is not None)
    return frozenset(name for names in found for name in names)


def side_by_side(plan: Plan, interleaved: Interleaved) -> Plan:
    """The plan with the repeats of each set one behind the other, all else in the order that it has where it can be
    (Kahn's topological order of the graph in which a set is one vertex). Raises ValueError for sets that do not exist.
    """
    graph, plain = plan.graph, {step.segment.name: step.segment.count for step in _plain_repeats(plan)}
    if any(len({plain.get(name, 0) for name in names}) != 1 or names[0] not in plain for names in interleaved):
        raise ValueError("repeats that run in turns have one number of iterations each, and nothing but operators")
    order = _order(graph.graph, interleaved)
    if order is None:
        raise ValueError("repeats that run in turns need each other")
    steps = graph.graph.steps
    ordered = replace(graph.graph, steps=tuple(steps[number] for number in order))
    graph = replace(graph, graph=ordered, steps=tuple(graph.steps[number] for number in order))
    return replace(plan.with_passes(interleaved=interleaved), graph=graph)


def in_model_order(plan: Plan) -> PlannedGraph:
    """The plan's graph with its steps as the model has them."""
    if not plan.passes.interleaved:
        return plan.graph
    place = {id(step): number for number, step in enumerate(plan.model.graph.steps)}
    pairs = zip(plan.graph.graph.steps, plan.graph.steps, strict=True)
    steps = [planned for _, planned in sorted(pairs, key=lambda pair: place[id(pair[0])])]
    return replace(plan.graph, graph=plan.model.graph, steps=tuple(steps))


def in_turns(steps: Iterable[PlannedSegment], interleaved: Interleaved) -> Iterator[list[PlannedSegment]]:
    """Bodies that come one behind the other: those of a set together, others alone."""
    member = {name: number for number, names in enumerate(interleaved) for name in names}
    for number, same in groupby(steps, lambda step: member.get(step.segment.name)):
        if number is None:
            yield from ([step] for step in same)
        else:
            yield list(same)


def stretches(steps: Sequence[PlannedSegment], around: PlannedGraph) -> Iterator[range]:
    """Iterations of repeats in each of which all take what the ones before leave, as they leave it."""
    first, count = 0, steps[0].segment.count
    for iteration in range(1, count):
        if not all(_goes_on(step, iteration, around) for step in steps):
            yield range(first, iteration)
            first = iteration
    yield range(first, count)


def turns_behind(count: int, stagger: int) -> tuple[int, ...]:
    """By how many turns each of so many repeats begins after the others: the last one at once, those before it one turn
    later each, in cycles of `stagger` repeats. So some send what they have computed while others compute; with a
    `stagger` of 1 all compute, and then all send.
    """
    return tuple((count - 1 - place) % stagger for place in range(count))


def run_number(step: PlannedSegment, iteration: int) -> int:
    """Of the run that an iteration is one of."""
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
    """Whether all that a repeat does is operators, with weights of its own, on what it carries and sees."""
    body, crossing = segment.body, segment.sliced or segment.stacked or segment.predicate is not None
    if crossing or not segment.results or body.updates or not body.weights:
        return False
    return all(isinstance(step, Node) for step in body.steps)


def _fits(
    graph: Graph, found: Sequence[list[PlannedSegment]], known: list[PlannedSegment], step: PlannedSegment
) -> bool:
    """Whether a repeat can be one of a `known` set, beside all that were found."""
    sets = ([*steps, step] if steps is known else steps for steps in found)
    return _order(graph, [[step.segment.name for step in steps] for steps in sets]) is not None


def _travels(step: PlannedSegment, conversions: Conversions) -> bool:
    """Whether values of a body are converted by collectives that can be waited for later."""
    return any(
        conversions.conversion(made.source, made.layout, planned.value.shape, planned.value.bytes).travels
        for run in step.runs
        for planned in run.body.values.values()
        if not planned.value.is_weight
        for made in planned.materialised
    )


def _order(graph: Graph, sets: Iterable[Sequence[str]]) -> list[int] | None:
    """The numbers of the steps with each set together, or None where one of a set needs another, in whatever way."""
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
