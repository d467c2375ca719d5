"""Text of repeats whose iterations run in turns: one call for all, of bodies that are generators.

A body yields where it must wait for what it has begun to send, so that the others compute meanwhile. Autograd runs what
was computed the latest first, so that the backward passes of the bodies run in turns as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..graph.gathered_weights import Steps
from ..graph.graph import Segment, Value
from ..graph.interleaved_repeats import run_number, stretches, turns_behind
from ..graph.layout import Layout
from ..graph.plan import PlannedGraph, PlannedSegment, Run
from .body_loops import iterations
from .comment_words import loop_words, where
from .gathering_text import ForwardText as Gathering
from .gathering_text import announce, gathers_first
from .module_text import ModuleText
from .program_names import Names, path
from .source_lines import statement


class Travelling(Protocol):
    """A forward method of which some variables are to hold what is on its way: by their names, what was begun."""

    module: ModuleText
    names: Names
    travelling: dict[str, str]


class ForwardText(Travelling, Gathering, Protocol):
    """The forward method that is written."""

    planned: PlannedGraph

    def variable(self, value: Value, layout: Layout, dtype: str | None = None) -> str:
        """The variable that holds a value in a layout."""

    def add(self, value: Value, variable: str, layout: Layout, *, parameter: bool = False) -> None:
        """A value that exists from here on."""

    def body(self, step: PlannedSegment, run: Run, number: int, *, in_turns: bool = False) -> ModuleText:
        """The class of a run's iterations."""

    def keep(self, segment: Segment, bodies: Sequence[tuple[ModuleText, int, int]]) -> None:
        """The modules of bodies."""


def depart(
    text: Travelling, name: str, call: str, given: Sequence[str], comment: str, *, in_blocks: bool = False
) -> None:
    """Begins a conversion whose result a variable of this `name` is to hold, which is to `arrive` before it is read; a
    product may wait for its blocks.
    """
    sent, function = text.names.fresh(f"{name}_sent"), "depart_in_blocks" if in_blocks else "depart"
    text.module.lines += statement(f"{sent} = parallel.{function}({', '.join([f'parallel.{call}', *given])})", comment)
    text.travelling[name] = sent


def arrive(text: Travelling, variables: Iterable[str], *, others_first: bool = True) -> None:
    """Waits for what these variables are to hold, if it is on its way: when the other bodies have computed."""
    sent = [(variable, text.travelling.pop(variable)) for variable in variables if variable in text.travelling]
    if sent and others_first:
        text.module.lines.append("yield  # overlapped with the other repeats")
    for variable, begun in sent:
        text.module.lines += statement(f"{variable} = parallel.arrived({begun})")


def add_interleaved(text: ForwardText, steps: Sequence[PlannedSegment], following: Steps) -> None:
    """Writes repeats whose iterations run in turns. In the last ones what the following steps gather is on its way."""
    captured = [[text.variable(*read) for read in step.border.reads(step.segment)] for step in steps]
    carried = [[text.names.fresh(value.name) for value in step.segment.results] for step in steps]
    modules = [[text.body(step, run, number, in_turns=True) for number, run in enumerate(step.runs)] for step in steps]
    for numbers in stretches(steps, text.planned):
        current = [_entering(text, step, numbers.start) for step in steps]
        behind = announce(text, following) if numbers.stop == steps[0].segment.count else ""
        over = [
            _ahead(step, bodies, numbers, "" if place else behind)
            for place, (step, bodies) in enumerate(zip(steps, modules, strict=True))
        ]
        _iterate(text, steps, over, current, carried, captured)
        for step, names in zip(steps, carried, strict=True):
            for value, name, layout in zip(step.segment.results, names, _leaving(text, step, numbers), strict=True):
                text.add(value, name, layout)
    for step, bodies in zip(steps, modules, strict=True):
        text.keep(step.segment, [(body, run.first, run.count) for body, run in zip(bodies, step.runs, strict=True)])


def _entering(text: ForwardText, step: PlannedSegment, iteration: int) -> list[str]:
    """The variables that hold what an iteration is given."""
    segment = step.segment
    body = step.runs[run_number(step, iteration)].body
    given = segment.initial if iteration == 0 else segment.results
    carries = zip(given, segment.entry, strict=True)
    return [text.variable(value, body.values[entry.name].produced, entry.dtype) for value, entry in carries]


def _leaving(text: ForwardText, step: PlannedSegment, numbers: range) -> Sequence[Layout]:
    """The layouts in which the last of these iterations leaves what it carries."""
    number = run_number(step, numbers[-1])
    if numbers.stop < step.segment.count and number == run_number(step, numbers.stop):
        return [step.runs[number].body.values[value.name].produced for value in step.segment.entry]
    return step.leaving(number, text.planned)


def _ahead(step: PlannedSegment, modules: Sequence[ModuleText], numbers: range, behind: str) -> str:
    """The modules of iterations. While one computes, what the next one gathers is on its way, at last what is gathered
    `behind` the repeat.
    """
    segment = step.segment
    over = iterations(path("self", segment.name, "_modules"), numbers, segment.count)
    then = gathers_first(step, modules, numbers.stop) if numbers.stop < segment.count else behind
    if not then and not any(modules[run_number(step, iteration)].gathers for iteration in numbers):
        return over
    return f"self.gathered.ahead({', '.join(filter(None, (over, then)))})"


def _iterate(
    text: ForwardText,
    steps: Sequence[PlannedSegment],
    over: Sequence[str],
    current: Sequence[Sequence[str]],
    carried: Sequence[Sequence[str]],
    captured: Sequence[Sequence[str]],
) -> None:
    """So many iterations of each, `over` its modules."""
    words = f"{where(steps[0].segment.span)}{', '.join(loop_words(step.segment) for step in steps)}: in turns"
    targets = ", ".join(f"({', '.join(names)}{',' * (len(names) == 1)})" for names in carried)
    calls = []
    for modules, given, outside in zip(over, current, captured, strict=True):
        entering = f"({', '.join(given)}{',' * (len(given) == 1)})"
        calls.append(f"parallel.through({', '.join([modules, entering, *outside, 'self'])})")
    if any(behind := turns_behind(len(steps), text.program.stagger)):
        calls.append(f"behind={behind}")
    text.module.lines += statement(f"{targets} = parallel.in_turns({', '.join(calls)})", words)
