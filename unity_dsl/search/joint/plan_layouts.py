"""The layouts of a plan, in which other extractions are tried first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...graph.graph import Value
from ...graph.layout import Layout
from ...graph.plan import PlannedGraph, PlannedSegment
from ..choices.extractions import Extractions
from ..cost_network.message_passing import Mask
from ..folded_solver.problem_part import Domains, Part
from ..layout_problem.model_problem import Problem
from ..layout_problem.variable_meaning import Meaning
from .extracted_model import Algebra

Held = Mapping[str, frozenset[Layout]]
"""The layouts in which a plan holds each value, by path. In a repeat they are those of all iterations."""


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


def in_layouts(problem: Problem, algebra: Algebra, held: Held, axes: Sequence[int] = ()) -> Domains:
    """The domains in which algebra reads and makes the values of a plan in its layouts, or in layouts that differ from
    one of these along the mesh `axes` only. Other values may have any layout.
    """
    return _Limiting(problem, algebra, held, axes).domains(problem.part, problem.meaning, "")


@dataclass(frozen=True)
class _Limiting:
    problem: Problem
    algebra: Algebra
    held: Held
    axes: Sequence[int]

    def domains(self, part: Part, meaning: Meaning, prefix: str) -> Domains:
        masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
        values, chosen = _values(self.algebra.graphs[prefix]), {variable for variable, _ in meaning.chosen.values()}
        for tensor in part.tensors:
            value = values.get(tensor.name.removeprefix(prefix))
            if value is None or tensor.name not in self.held:
                continue
            # `nothing` (a value that is not read or made) comes after the layouts, once or for each extraction.
            allowed = np.append(self._allowed(value, self.held[tensor.name]), True)
            numbered = meaning.numbered.get(tensor.name)
            for end, port in enumerate((tensor.produced, *tensor.reads)):
                if port.variable in chosen:
                    layouts = port.layouts if numbered is None else numbered[end][port.layouts]
                    masks[port.variable] &= allowed[layouts % len(allowed)]
        bodies = [
            self.domains(repeat.body, body, f"{prefix}{segment.name}.")
            for repeat, body, segment in zip(part.repeats, meaning.bodies, meaning.graph.segments, strict=True)
        ]
        return Domains(masks, bodies)

    def _allowed(self, value: Value, layouts: Iterable[Layout]) -> Mask:
        """Whether each layout of a value is allowed."""
        space = self.problem.spaces.of(value)
        others = [axis for axis in range(len(self.problem.spaces.mesh.axes)) if axis not in self.axes]
        if not self.axes:
            return np.isin(np.arange(len(space.layouts)), [space.number(one) for one in layouts if space.has(one)])
        known = space.along[[space.number(one) for one in layouts if space.has(one)]]
        alike = space.along[:, None, others] == known[None, :, others]
        return np.asarray(alike.all(axis=2).any(axis=1))


def _values(graph: Extractions) -> dict[str, Value]:
    """The values that algebra makes or reads, by name."""
    made = {choice.value.name: choice.value for choice in graph.choices.values()}
    return made | {value.name: value for choice in graph.choices.values() for value, _ in choice.reads}
