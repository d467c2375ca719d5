"""Notes of a plan for its user on pinned slices that are gathered before each operator that reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..graph.graph import Model, Value
from ..graph.layout import Layout, Shard
from ..graph.plan import PlannedGraph, PlannedNode, PlannedSegment
from ..syntax.diagnostic import first_of
from .choices.restriction import Place, places
from .layout_pins import matching

_NAMED = 4


def describe_gathered(pins: Iterable[str], model: Model, graph: PlannedGraph) -> Iterator[str]:
    """One sentence for each pin whose slices are gathered at once, with values to pin instead."""
    every = list(places(model))
    for name in pins:
        found = [place for place in matching(name, every) if _is_gathered(place, graph)]
        if not found:
            continue
        paths = first_of([f"`{place.path}`" for place in found], _NAMED)
        readers = list(dict.fromkeys(reader for place in found for reader in _readers(place, every)))
        text = f"every operator gathers the slices of {paths} before it reads them"
        yield f"pin `{name}`: {text}; to divide the work, pin what is made of them: {first_of(readers, _NAMED)}"


def _is_gathered(place: Place, graph: PlannedGraph) -> bool:
    """Whether the value is produced in slices, and every reader in every run reads it without slices."""
    graphs = [graph]
    for segment in place.segments:
        steps = (step for found in graphs for step in found.steps if isinstance(step, PlannedSegment))
        graphs = [run.body for step in steps if step.segment.name == segment.name for run in step.runs]
    reads: list[Layout] = []
    for found in graphs:
        if not _is_cut(found.values[place.value.name].produced):
            return False
        reads += [layout for value, layout in _reads(found) if value.name == place.value.name]
    return bool(reads) and not any(map(_is_cut, reads))


def _is_cut(layout: Layout) -> bool:
    return any(isinstance(kind, Shard) for kind in layout.kinds)


def _reads(graph: PlannedGraph) -> Iterator[tuple[Value, Layout]]:
    """The layouts in which steps of the graph read values."""
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            yield from zip(step.node.arguments, step.typed.arguments, strict=True)
            continue
        yield from step.border.reads(step.segment)
        first = step.runs[0].body
        for value, entry in zip(step.segment.initial, step.segment.entry, strict=True):
            yield value, first.values[entry.name].produced


def _readers(place: Place, every: Iterable[Place]) -> Iterator[str]:
    """Paths of the results of operators that read the value, in the same segments."""
    for other in every:
        same = [segment.name for segment in other.segments] == [segment.name for segment in place.segments]
        if same and other.node is not None and place.value.name in {value.name for value in other.node.arguments}:
            yield other.path
