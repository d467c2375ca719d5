"""Assembles the plan from the values of the variables: typed operators, layouts of values, repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...graph.graph import Model, Node, Segment, Value
from ...graph.layout import Layout, Mesh, invariant
from ...graph.plan import Border, Materialised, PlannedGraph, PlannedNode, PlannedSegment, PlannedValue, Run
from ..choices.layout_space import NO_OVERLAP, ConversionOverlap
from ..cost_network.bucket_elimination import Table
from ..folded_solver.exact_minimum import Solved
from ..folded_solver.problem_part import Port
from .model_problem import Problem
from .variable_meaning import Crossings, Meaning

Tree = list[tuple[int, int]]
"""Conversions as (target, source), sources first."""


def assemble(problem: Problem, solved: Solved, mesh: Mesh, model: Model) -> PlannedGraph:
    """The plan that a solution of the problem stands for."""
    wanted = {value.name: (invariant(mesh),) for value in model.whole}
    return _assemble(problem, problem.meaning, solved, mesh, {}, wanted)


def _assemble(
    problem: Problem,
    meaning: Meaning,
    solved: Solved,
    mesh: Mesh,
    outside: dict[str, tuple[Value, Layout]],
    wanted: Mapping[str, tuple[Layout, ...]],
) -> PlannedGraph:
    """Assembles the plan of one part. `outside` are the whole values from outside; the part has a variable for every
    other value. `wanted` are the layouts required at the end.
    """
    produced = dict(outside)
    for source in meaning.graph.inputs:
        produced[source.value.name] = source.value, invariant(mesh)
    for variable in meaning.kept.values():
        value, layouts = meaning.layouts[variable]
        produced[value.name] = value, problem.spaces.of(value).layouts[layouts[solved.values[variable]]]
    typed = {}
    asked = dict(wanted)
    for node in _nodes(meaning):
        if node.name in meaning.nodes:
            variable, options = meaning.nodes[node.name]
            typed[node.name] = options.configurations.at(solved.values[variable])
        else:
            typed[node.name] = meaning.fixed[node.name].configurations.at(0)
        for value, layout in zip(node.arguments, typed[node.name].arguments, strict=True):
            asked[value.name] = (*asked.get(value.name, ()), layout)
            if (stored := meaning.stored.get(value.name)) is not None:
                space = problem.spaces.of(value)
                produced[value.name] = value, space.layouts[stored.best[space.number(layout)]]
        for value, layout in zip(node.results, typed[node.name].results, strict=True):
            produced[value.name] = value, layout
    for update in meaning.graph.updates:
        asked[update.value.name] = (*asked.get(update.value.name, ()), produced[update.buffer.name][1])
    steps: list[PlannedNode | PlannedSegment] = []
    inner = iter(zip(meaning.bodies, meaning.borders, solved.repeats, strict=True))
    for step in meaning.graph.steps:
        if isinstance(step, Node):
            steps.append(PlannedNode(step, typed[step.name]))
            continue
        body, crossings, iterations = next(inner)
        for result in step.makes:
            produced.setdefault(result.name, (result, invariant(mesh)))
        border = _border(problem, step, crossings, solved, mesh)
        for value, layout in border.reads(step):
            asked[value.name] = (*asked.get(value.name, ()), layout)
        steps.append(_segment(problem, step, body, border, iterations, mesh))
    values = {}
    for name, (value, layout) in produced.items():
        overlap = None if name in meaning.free else meaning.overlap.get(name, NO_OVERLAP)
        conversions = _materialise(problem, value, layout, asked.get(name, ()), overlap)
        values[name] = PlannedValue(value, layout, conversions)
    return PlannedGraph(meaning.graph, values, tuple(steps))


def _nodes(meaning: Meaning) -> Iterable[Node]:
    return (step for step in meaning.graph.steps if isinstance(step, Node))


def _segment(
    problem: Problem,
    segment: Segment,
    meaning: Meaning,
    border: Border,
    iterations: Sequence[Solved],
    mesh: Mesh,
) -> PlannedSegment:
    """Plans a segment. Consecutive iterations with the same plan form one run if they leave carried values in the
    layouts in which they enter.
    """
    given = (*segment.captured, *segment.entry, *(series.part for series in segment.sliced))
    whole = {value.name: (value, invariant(mesh)) for value in given if value.name in meaning.free}
    runs: list[Run] = []
    last: Solved | None = None
    for number, solved in enumerate(iterations):
        if solved == last and _steady(runs[-1].body, segment):
            runs[-1] = replace(runs[-1], count=runs[-1].count + 1)
            continue
        wanted = {value.name: (layout,) for value, layout in border.leaves(segment)}
        runs.append(Run(number, 1, _assemble(problem, meaning, solved, mesh, whole, wanted)))
        last = solved
    return PlannedSegment(segment, tuple(runs), border)


def _border(problem: Problem, segment: Segment, crossings: Crossings, solved: Solved, mesh: Mesh) -> Border:
    def layouts(values: Iterable[Value], ports: Sequence[Port | None]) -> tuple[Layout, ...]:
        return tuple(
            invariant(mesh)
            if port is None
            else problem.spaces.of(value).layouts[port.layouts[solved.values[port.variable]]]
            for value, port in zip(values, ports, strict=True)
        )

    carried = segment.results if segment.predicate is not None else ()
    return Border(
        layouts(segment.captured, crossings.captured),
        layouts((series.part for series in segment.sliced), crossings.sliced),
        layouts((series.part for series in segment.stacked), crossings.stacked),
        layouts(carried, crossings.carried),
        None if segment.predicate is None else invariant(mesh),
    )


def _steady(body: PlannedGraph, segment: Segment) -> bool:
    ends = zip(segment.entry, segment.exit, strict=True)
    return all(body.values[entry.name].produced == body.values[exit_.name].produced for entry, exit_ in ends)


# ---------------------------------------------------------------------------------------------- conversions


def _materialise(
    problem: Problem, value: Value, produced: Layout, asked: Sequence[Layout], overlap: ConversionOverlap | None
) -> tuple[Materialised, ...]:
    """The cheapest conversions that make every layout asked for, through at most two layouts besides the produced one.

    `overlap` says what overlaps with them. It is None for a free value, from which every layout is sliced.
    """
    needed = [layout for layout in dict.fromkeys(asked) if layout != produced]
    if overlap is None:
        return tuple(Materialised(layout, produced) for layout in needed)
    spaces, space = problem.spaces, problem.spaces.of(value)
    prices, between = spaces.conversions(value, overlap), spaces.between(value)
    tree = cheapest_tree(prices, space.number(produced), list(map(space.number, needed)), between)
    return tuple(Materialised(space.layouts[target], space.layouts[source]) for target, source in tree)


def cheapest_tree(prices: Table, root: int, needed: Sequence[int], between: Table | None = None) -> Tree:
    """The cheapest conversions, as (target, source) with sources first, that make all needed layouts and at most two.
    `between` are the prices of converting a layout that was itself made, if they differ. Ties go to the first tree,
    simple ones first.
    """
    best, found = np.inf, None
    for tree in _trees(root, needed):
        cost = tree_price(prices, root, tree, between)
        if cost < best:
            best, found = cost, tree
    assert found is not None, "more layouts are needed than may be held"
    return found


def tree_price(prices: Table, root: int, tree: Tree, between: Table | None = None) -> float:
    """Seconds of conversions as (target, source)."""
    onward = prices if between is None else between
    return float(sum((prices if source == root else onward)[source, target] for target, source in tree))


def _trees(root: int, needed: Sequence[int]) -> Iterator[Tree]:
    """Every tree that makes the needed layouts. Another layout in between never pays: prices are closed under paths."""
    match list(needed):
        case []:
            yield []
        case [first]:
            yield [(first, root)]
        case [first, second]:
            yield [(first, root), (second, root)]
            yield [(first, root), (second, first)]
            yield [(second, root), (first, second)]
