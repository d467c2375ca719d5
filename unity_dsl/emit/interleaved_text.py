"""Text of repeats whose iterations run in turns: one loop for all, of bodies that are generators.

A body yields where it must wait for what it has begun to send, so that the others compute meanwhile. Autograd runs what
was computed the latest first, so that the backward passes of the bodies run in turns as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ..graph.graph import Segment, Value
from ..graph.interleaved_repeats import common_runs
from ..graph.layout import Layout
from ..graph.plan import PlannedGraph, PlannedSegment, Run
from .body_loops import iterations
from .comment_words import loop_words, where
from .module_text import ModuleText
from .program_names import Names, path
from .source_lines import statement


class Travelling(Protocol):
    """A forward method of which some variables are to hold what is on its way: by their names, what was begun."""

    module: ModuleText
    names: Names
    travelling: dict[str, str]


class ForwardText(Travelling, Protocol):
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


def depart(text: Travelling, name: str, call: str, given: Sequence[str], comment: str) -> None:
    """Begins a conversion whose result a variable of this `name` is to hold, which is to `arrive` before it is read."""
    sent = text.names.fresh(f"{name}_sent")
    text.module.lines += statement(f"{sent} = parallel.depart({', '.join([f'parallel.{call}', *given])})", comment)
    text.travelling[name] = sent


def arrive(text: Travelling, variables: Iterable[str], *, others_first: bool = True) -> None:
    """Waits for what these variables are to hold, if it is on its way: when the other bodies have computed."""
    sent = [(variable, text.travelling.pop(variable)) for variable in variables if variable in text.travelling]
    if sent and others_first:
        text.module.lines.append("yield  # the others compute while this travels")
    for variable, begun in sent:
        text.module.lines += statement(f"{variable} = parallel.arrived({begun})")


def add_interleaved(text: ForwardText, steps: Sequence[PlannedSegment]) -> None:
    """Writes repeats whose iterations run in turns."""
    captured = [[text.variable(*read) for read in step.border.reads(step.segment)] for step in steps]
    carried = [[text.names.fresh(value.name) for value in step.segment.results] for step in steps]
    modules = [[text.body(step, run, number, in_turns=True) for number, run in enumerate(step.runs)] for step in steps]
    for together, numbers in common_runs(steps):
        runs = [
            replace(step.runs[number], first=together.start, count=len(together))
            for step, number in zip(steps, numbers, strict=True)
        ]
        current = [_entering(text, step, run) for step, run in zip(steps, runs, strict=True)]
        _iterate(text, steps, runs, current, carried, captured)
        for step, run, number, names in zip(steps, runs, numbers, carried, strict=True):
            ends = step.runs[number].first + step.runs[number].count == together.stop
            inside = [run.body.values[value.name].produced for value in step.segment.entry]
            leaving = step.leaving(number, text.planned) if ends else inside
            for value, name, layout in zip(step.segment.results, names, leaving, strict=True):
                text.add(value, name, layout)
    for step, bodies in zip(steps, modules, strict=True):
        text.keep(step.segment, [(body, run.first, run.count) for body, run in zip(bodies, step.runs, strict=True)])


def _entering(text: ForwardText, step: PlannedSegment, run: Run) -> list[str]:
    """The variables that hold what the first of some iterations is given."""
    segment = step.segment
    layouts = [run.body.values[value.name].produced for value in segment.entry]
    given = segment.initial if run.first == 0 else segment.results
    carries = zip(given, layouts, segment.entry, strict=True)
    return [text.variable(value, layout, entry.dtype) for value, layout, entry in carries]


def _iterate(
    text: ForwardText,
    steps: Sequence[PlannedSegment],
    runs: Sequence[Run],
    current: Sequence[Sequence[str]],
    carried: Sequence[Sequence[str]],
    captured: Sequence[Sequence[str]],
) -> None:
    """A loop, or one iteration of each."""
    first, run = steps[0].segment, runs[0]
    words = f"{where(first.span)}{', '.join(loop_words(step.segment) for step in steps)}: in turns"
    modules = [path("self", step.segment.name, "_modules") for step in steps]
    once, lines = run.count == 1, text.module.lines
    called = [f"{module}[{run.first}]" for module in modules]
    if not once:
        for names, given in zip(carried, current, strict=True):
            if list(names) != list(given):
                lines += statement(f"{', '.join(names)} = {', '.join(given)}")
        called = [text.names.fresh(step.segment.name.rpartition(".")[2]) for step in steps]
        over = ", ".join(iterations(module, run, first.count) for module in modules)
        lines += statement(f"for {', '.join(called)} in zip({over}, strict=True):", words)
    targets = [names[0] if len(names) == 1 else f"({', '.join(names)})" for names in carried]
    calls = [
        f"{call}({', '.join([*given, *outside, 'self'])})"
        for call, given, outside in zip(called, current if once else carried, captured, strict=True)
    ]
    code = f"{', '.join(targets)} = parallel.in_turns({', '.join(calls)})"
    lines += statement(code, words if once else "", indent="" if once else "    ")
