"""Sizes of inputs that a program's text does not depend on: outside training it may be called with smaller ones.

A parameter of the model is such a size if the model with a value of 1, planned in the same way, has the same text. Then
no device divides the size and no line depends on it. A call with a smaller size does what a program compiled for that
size would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ..graph.graph import Graph, Model, Segment, Value
from ..graph.layout import Mesh
from ..graph.layout_typing import type_operator
from ..graph.plan import Plan, PlannedGraph, PlannedNode, PlannedSegment, PlannedValue
from ..index.library import Library
from ..syntax.ast import ModelFile, Name, Storage, StorageDecl
from ..syntax.diagnostic import InputError

Again = Callable[[str, int], Model | None]
CONSIDERED = 3
"""How many parameters are tried, in the order in which the dimensions of inputs name them."""


SmallerSizes = Mapping[str, tuple[str | None, ...]]
"""Per input and dimension, the parameter whose value may be smaller in a call, or None."""

NONE: SmallerSizes = {}


def find_smaller_sizes(
    plan: Plan, text: object, file: ModelFile, library: Library, again: Again, write: Callable[[Plan], object]
) -> SmallerSizes:
    """The dimensions of inputs that may be smaller without a change of the plan's text.

    `again` builds the model with another value of a parameter, or returns None. `write` gives the text of a plan in a
    form that can be compared; `text` is the text of this plan.
    """
    named = dict(_named_dimensions(file, plan.model.parameters))
    candidates = dict.fromkeys(name for names in named.values() for name in names if name is not None)
    for given, names in named.items():
        for dim, name in enumerate(names):
            if name in candidates and _is_cut(plan.graph.values.get(given), dim):
                del candidates[name]
    found = set()
    for name in list(candidates)[:CONSIDERED]:
        value = plan.model.parameters[name]
        if isinstance(value, int) and value > 1:
            smaller = _planned_alike(plan, again, name, library)
            try:
                if smaller is not None and write(smaller) == text:
                    found.add(name)
            except ValueError:  # an operator or a conversion that cannot be written at this size
                continue
    return {
        given: tuple(name if name in found else None for name in names)
        for given, names in named.items()
        if not found.isdisjoint(names)
    }


def _is_cut(planned: PlannedValue | None, dim: int) -> bool:
    """Whether some layout of a value divides the dimension."""
    if planned is None:
        return False
    return any(layout.nesting(dim) for layout in (planned.produced, *(made.layout for made in planned.materialised)))


def _named_dimensions(
    file: ModelFile, parameters: Mapping[str, object]
) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Per input, the parameter that each of its dimensions is; None for other dimensions."""
    for statement in file.model.body:
        if isinstance(statement, StorageDecl) and statement.storage is Storage.INPUT:
            yield (
                statement.name,
                tuple(
                    dim.name if isinstance(dim, Name) and dim.name in parameters else None
                    for dim in statement.type.dims
                ),
            )


# ---------------------------------------------------------------------------------------------- the same plan


class _Differs(Exception):
    """The model at another size does not have the same plan."""


def _planned_alike(plan: Plan, again: Again, name: str, library: Library) -> Plan | None:
    """The same plan for the model with a parameter of 1, under the same configurations; None if there is none."""
    try:
        model = again(name, 1)
        if model is None:
            return None
        graph = _graph(plan.graph, model.graph, {}, plan.mesh, library)
    except (InputError, _Differs):
        return None
    return replace(plan, model=model, graph=graph)


def _graph(
    planned: PlannedGraph, graph: Graph, outside: Mapping[str, Value], mesh: Mesh, library: Library
) -> PlannedGraph:
    """The same plan for a graph that differs in sizes alone. Raises _Differs if there is none."""
    values = {**outside, **{value.name: value for value in _values(graph)}}
    stored = (*(weight.value for weight in graph.weights), *(buffer.value for buffer in graph.buffers))
    if any(planned.values[value.name].value.shape != value.shape for value in stored):
        raise _Differs
    if len(planned.steps) != len(graph.steps) or not planned.values.keys() <= values.keys():
        raise _Differs
    steps: list[PlannedNode | PlannedSegment] = []
    for before, step in zip(planned.steps, graph.steps, strict=True):
        if isinstance(before, PlannedSegment) and isinstance(step, Segment):
            inner = {**values, **{value.name: value for value in (*step.entry, *(one.part for one in step.sliced))}}
            runs = tuple(replace(run, body=_graph(run.body, step.body, inner, mesh, library)) for run in before.runs)
            if before.segment.count != step.count:
                raise _Differs
            steps.append(replace(before, segment=step, runs=runs))
        elif isinstance(before, PlannedNode) and not isinstance(step, Segment) and before.node.name == step.name:
            typed = type_operator(step.instance, before.typed.configuration, mesh, library)
            if (
                isinstance(typed, str)
                or typed.arguments != before.typed.arguments
                or typed.results != before.typed.results
            ):
                raise _Differs
            steps.append(PlannedNode(step, typed))
        else:
            raise _Differs
    alike = {name: replace(found, value=values[name]) for name, found in planned.values.items()}
    if not all(_is_divided_evenly(found, mesh) for found in alike.values()):
        raise _Differs
    return PlannedGraph(graph, alike, tuple(steps))


def _is_divided_evenly(planned: PlannedValue, mesh: Mesh) -> bool:
    """Whether every layout of a value cuts its dimensions into equal parts."""
    layouts = (planned.produced, *(made.layout for made in planned.materialised))
    sizes = list(enumerate(planned.value.shape))
    return all(size % mesh.degree(layout.nesting(dim)) == 0 for layout in layouts for dim, size in sizes)


def _values(graph: Graph) -> Iterator[Value]:
    """The values that the graph itself stores and makes."""
    yield from (given.value for given in graph.inputs)
    yield from (weight.value for weight in graph.weights)
    yield from (buffer.value for buffer in graph.buffers)
    for step in graph.steps:
        yield from step.makes
