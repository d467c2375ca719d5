"""Loops of a function: which iterations run together, what they are given and leave, and which are interleaved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..graph.gathered_weights import Steps
from ..graph.graph import Graph, Segment
from ..graph.interleaved_repeats import run_number, stretches
from ..graph.layout import Layout
from ..graph.plan import PlannedGraph, PlannedSegment, Run
from .gathers import announce
from .ir import Branch, Close, Interleave, Iterate, Loop, Open, Tensor
from .values import Values, new_tensors


@dataclass(frozen=True)
class Part:
    """Iterations that one loop executes: those of the runs with these `numbers`, with the body of the first run. Either
    all of them are among the `first_ones` of the segment, or none is.
    """

    numbers: tuple[int, ...]
    run: Run
    first_ones: bool

    def followed_by(self, other: Part) -> Part:
        """Both parts as one."""
        numbers = (*self.numbers, *other.numbers)
        return replace(self, numbers=numbers, run=replace(self.run, count=self.run.count + other.run.count))


def find_parts(step: PlannedSegment, around: PlannedGraph, first_ones: int) -> list[Part]:
    """One part for the iterations of a run. Consecutive runs share a part if they store tensors and each takes what the
    one before leaves. The first `first_ones` iterations have parts of their own.
    """
    found: list[Part] = []
    for number, run in enumerate(step.runs):
        for iterations, among in run.parts(first_ones):
            part = Part((number,), iterations, among)
            if not found or not (part.run.first > run.first or _follows(step, around, number)):
                found.append(part)
            elif part.first_ones == found[-1].first_ones:
                found[-1] = found[-1].followed_by(part)
            else:
                found.append(part)
    return found


def _follows(step: PlannedSegment, around: PlannedGraph, number: int) -> bool:
    """Whether the modules of a run take what those of the run before leave."""
    stores = (stores_anything(step.runs[one].body.graph) for one in (number - 1, number))
    return number > 0 and all(stores) and step.goes_on(number, around)


def stores_anything(graph: Graph) -> bool:
    """Whether a graph, or a body in it, has weights or buffers."""
    inner = (step.body for step in graph.steps if isinstance(step, Segment))
    return bool(graph.weights or graph.buffers) or any(map(stores_anything, inner))


def add_segment(function: Values, loop: Loop, following: Steps) -> None:
    """Adds a repeat, scan or cond. The last iteration of a loop prefetches the weights of the steps that follow."""
    step, segment, border = loop.step, loop.step.segment, loop.step.border
    taken = [function.tensor(value, layout) for value, layout in border.reads(segment)]
    captured = tuple(taken[: len(segment.captured)])
    if segment.predicate is not None:
        function.instructions.append(Open(loop, captured))
        carries = zip(segment.initial, border.carried, segment.entry, strict=True)
        given = tuple(function.tensor(value, layout, entry.dtype) for value, layout, entry in carries)
        makes = new_tensors(segment.results, border.carried)
        function.instructions += [Branch(loop, taken[-1], given, makes), Close(loop, ())]
        _add(function, makes)
        return
    function.instructions.append(Open(loop, captured, tuple(taken[len(segment.captured) :])))
    for part in find_parts(step, function.planned, max(loop.again, loop.offloaded)):
        layouts = [part.run.body.values[value.name].produced for value in segment.entry]
        carried = segment.initial if part.run.first == 0 else segment.results
        carries = zip(carried, layouts, segment.entry, strict=True)
        given = tuple(function.tensor(value, layout, entry.dtype) for value, layout, entry in carries)
        end = part.run.first + part.run.count
        is_last = end == segment.count > 1  # a single iteration has nothing to overlap with
        then = announce(function, following) if is_last else ()
        makes = new_tensors(segment.results, step.leaving(part.numbers[-1], function.planned))
        function.instructions.append(Iterate(loop, part.numbers, part.run, given, makes, then))
        _add(function, makes)
    layouts = [layout.inserted(series.dim) for series, layout in zip(segment.stacked, border.stacked, strict=True)]
    makes = new_tensors([series.whole for series in segment.stacked], layouts)
    function.instructions.append(Close(loop, makes))
    _add(function, makes)


def add_interleaved(function: Values, loops: Sequence[Loop], following: Steps) -> None:
    """Adds repeats whose iterations are interleaved. The last iterations prefetch the weights of
    the steps that follow.
    """
    steps = [loop.step for loop in loops]
    captured = [tuple(function.tensor(*read) for read in step.border.reads(step.segment)) for step in steps]
    function.instructions += [Open(loop, given) for loop, given in zip(loops, captured, strict=True)]
    for numbers in stretches(steps, function.planned):
        given = tuple(_entering(function, step, numbers.start) for step in steps)
        then = announce(function, following) if numbers.stop == steps[0].segment.count else ()
        leaving = (_leaving(function, step, numbers) for step in steps)
        makes = tuple(new_tensors(step.segment.results, left) for step, left in zip(steps, leaving, strict=True))
        function.instructions.append(Interleave(tuple(loops), numbers, given, makes, then))
        for tensors in makes:
            _add(function, tensors)
    function.instructions += [Close(loop, ()) for loop in loops]


def _entering(function: Values, step: PlannedSegment, iteration: int) -> tuple[Tensor, ...]:
    """The tensors that an iteration is given."""
    segment = step.segment
    body = step.runs[run_number(step, iteration)].body
    given = segment.initial if iteration == 0 else segment.results
    carries = zip(given, segment.entry, strict=True)
    return tuple(function.tensor(value, body.values[entry.name].produced, entry.dtype) for value, entry in carries)


def _leaving(function: Values, step: PlannedSegment, numbers: range) -> Sequence[Layout]:
    """The layouts in which the last of these iterations leaves its carried values."""
    number = run_number(step, numbers[-1])
    if numbers.stop < step.segment.count and number == run_number(step, numbers.stop):
        return [step.runs[number].body.values[value.name].produced for value in step.segment.entry]
    return step.leaving(number, function.planned)


def _add(function: Values, tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        function.add(tensor)
