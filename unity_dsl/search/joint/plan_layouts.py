"""The layouts of a plan, in which other algebra is tried first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...graph.graph import Segment, Value
from ...graph.layout import Layout
from ...graph.plan import PlannedGraph, PlannedSegment
from ..choices.extractions import Extractions
from ..folded_solver.problem_part import Domains, Part
from ..layout_problem.model_problem import Problem
from ..layout_problem.variable_meaning import Meaning
from .extracted_model import Algebra

Held = Mapping[str, frozenset[Layout]]
"""The layouts in which a plan holds each value, by its path; of a repeat those of all iterations."""


def layouts_of(graph: PlannedGraph, prefix: str = "") -> dict[str, frozenset[Layout]]:
    """The layouts in which a plan holds each value."""
    found = {
        prefix + name: frozenset((value.produced, *(made.layout for made in value.materialised)))
        for name, value in graph.values.items()
    }
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                for path, layouts in layouts_of(run.body, f"{prefix}{step.segment.name}.").items():
                    found[path] = found.get(path, frozenset()) | layouts
    return found


def in_layouts(problem: Problem, algebra: Algebra, held: Held) -> Domains:
    """The choices of algebra that read and make the values of a plan in its layouts, and other values in any."""
    return _in_layouts(problem, problem.part, problem.meaning, algebra, held, "")


def _in_layouts(problem: Problem, part: Part, meaning: Meaning, algebra: Algebra, held: Held, prefix: str) -> Domains:
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    graph = algebra.graphs[prefix]
    values, chosen = _values(graph), {variable for variable, _ in meaning.chosen.values()}
    for tensor in part.tensors:
        value = values.get(tensor.name.removeprefix(prefix))
        if value is None or tensor.name not in held:
            continue
        space = problem.spaces.of(value)
        nothing = len(space.layouts)
        allowed = [*(space.number(layout) for layout in held[tensor.name] if space.has(layout)), nothing]
        for port in (tensor.produced, *tensor.reads):
            if port.variable in chosen:
                masks[port.variable] &= np.isin(port.layouts % (nothing + 1), allowed)
    bodies = [
        _in_layouts(problem, repeat.body, body, algebra, held, f"{prefix}{segment.name}.")
        for repeat, body, segment in zip(part.repeats, meaning.bodies, _segments(meaning), strict=True)
    ]
    return Domains(masks, bodies)


def _values(graph: Extractions) -> dict[str, Value]:
    """The values that algebra makes or reads, by name."""
    made = {choice.value.name: choice.value for choice in graph.choices.values()}
    return made | {value.name: value for choice in graph.choices.values() for value, _ in choice.reads}


def _segments(meaning: Meaning) -> Sequence[Segment]:
    return meaning.graph.segments
