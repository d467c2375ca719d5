"""The loops of an emitted forward over the iterations of a segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..graph.graph import Segment
from ..graph.layout import Layout
from ..graph.plan import PlannedGraph, PlannedSegment, Run
from .program_names import Names, is_identifier
from .program_state import Copies


class Written(Protocol):
    """A forward function while it is written: its graph, what holds values, and what is read when it is through."""

    planned: PlannedGraph
    held: dict[str, Copies]
    leaving: set[str]
    names: Names

    @property
    def delays(self) -> Mapping[tuple[str, Layout], object]: ...


@dataclass(frozen=True)
class Passed:
    """Variables of a loop: what it carries and begins with, slices by position, what is captured, lists to stack.

    `ahead` says that gathers of weights begin before they are read: those of its modules, and `then` those of what
    comes after it. The backward pass may run its forward `again`.
    """

    carried: Sequence[str]
    current: Sequence[str]
    parts: Sequence[str]
    captured: Sequence[str]
    stacks: Sequence[str]
    ahead: bool = False
    then: str = ""
    again: bool = False


@dataclass(frozen=True)
class Loop:
    """Iterations that one loop executes: those of runs of these `numbers`, with the body of the first of them. The
    backward pass may run its forward `again`.
    """

    numbers: tuple[int, ...]
    run: Run
    again: bool = False

    def followed_by(self, other: Loop) -> Loop:
        """Both as one."""
        numbers = (*self.numbers, *other.numbers)
        return replace(self, numbers=numbers, run=replace(self.run, count=self.run.count + other.run.count))


def find_loops(step: PlannedSegment, around: PlannedGraph, stores: Sequence[bool], run_again: int) -> list[Loop]:
    """One loop for the iterations of a run, or of several whose bodies are modules, which `stores` says by run, of
    which each takes what the one before leaves. The first iterations that are `run_again` have loops of their own.
    """
    found: list[Loop] = []
    for number, run in enumerate(step.runs):
        for iterations, again in run.parts(run_again):
            part = Loop((number,), iterations, again)
            if not found or not (part.run.first > run.first or _follows(step, around, stores, number)):
                found.append(part)
            elif part.again == found[-1].again:
                found[-1] = found[-1].followed_by(part)
            else:
                found.append(part)
    return found


def _follows(step: PlannedSegment, around: PlannedGraph, stores: Sequence[bool], number: int) -> bool:
    """Whether the modules of a run take what those of the one before leave."""
    return number > 0 and stores[number - 1] and stores[number] and step.goes_on(number, around)


def carried_names(text: Written, segment: Segment, current: Sequence[str]) -> Iterator[str]:
    """Variables of what a segment carries: those that hold what it begins with, where nothing else reads that, as in
    `x = layer(x)`; else new ones.
    """
    graph = text.planned.graph
    reads = Counter(value.name for step in graph.steps for value in step.reads)
    reads += Counter(update.value.name for update in graph.updates)
    holding = Counter(variable for copies in text.held.values() for variable in set(copies.variables.values()))
    for result, begun, variable in zip(segment.results, segment.initial, current, strict=True):
        once = reads[begun.name] == 1 and begun.name not in text.leaving and not text.delays
        own = holding[variable] == 1 and variable in text.held[begun.name].variables.values()
        if once and own and is_identifier(variable):
            del text.held[begun.name]  # the variable is of another value from here on
            yield variable
        else:
            yield text.names.fresh(result.name)


def iterations(modules: str, numbers: range, count: int) -> str:
    """The modules of iterations of a segment that has `count`: all of them, or a slice."""
    first, last = numbers.start or "", "" if numbers.stop == count else numbers.stop
    return modules if len(numbers) == count else f"{modules}[{first}:{last}]"
