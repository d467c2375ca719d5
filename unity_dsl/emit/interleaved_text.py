"""Text of asynchronous collectives, and of the interleaved execution of repeats: one call for all, with generators as
bodies.

A body yields before it waits for a collective that it started, so that the other repeats compute meanwhile. Autograd
runs the latest computation first, so the backward passes of the bodies are interleaved as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..graph.interleaved_repeats import start_delays
from ..schedule.ir import Arrive, Begin, Compute, Interleave, Loop, Tensor
from .body_loops import iterations
from .comment_words import layout_word, loop_words, where
from .gathering_text import ForwardText as Gathering
from .gathering_text import gathers_first, list_gathers
from .program_names import path
from .source_lines import statement


class ForwardText(Gathering, Protocol):
    """The forward method that is being written. `sent` has the variables of started collectives. `captured` and
    `carried` have the variables that a loop's bodies are given.
    """

    sent: dict[Begin | Compute, str]
    captured: dict[Loop, list[str]]
    carried: dict[Loop, list[str]]

    def variable(self, tensor: Tensor) -> str:
        """The variable that holds a tensor."""

    def add(self, tensors: Sequence[Tensor], variables: Sequence[str]) -> None:
        """Names values that exist from here on, in these variables."""


def add_begin(text: ForwardText, begin: Begin) -> None:
    """Writes the start of a conversion. A product may wait for its blocks one by one."""
    given, made = begin.reads, begin.makes
    collectives, shape = text.program.collectives, given.value.shape
    found = collectives.between(begin.conversion, begin.source, made.layout, shape)
    name = text.names.fresh(f"{made.value.name}_{layout_word(made.layout)}")
    sent = text.names.fresh(f"{name}_sent")
    function = "start_conversion" if begin.product is None else "start_conversion_in_blocks"
    call = f"{sent} = parallel.{function}(parallel.{found.name}, {text.variable(given)}, {text.state}.groups)"
    text.module.lines += statement(call, f"{begin.source} -> {made.layout}" if begin.source.kinds else "")
    text.sent[begin] = sent
    text.name(made, name)
    text.program.chunked |= begin.product is not None


def add_arrive(text: ForwardText, arrive: Arrive) -> None:
    """Writes the wait for a started collective. An interleaved body first lets the others compute."""
    begun, made = arrive.begun, arrive.makes
    if arrive.yields:
        text.module.lines.append("yield  # overlapped with the other repeats")
    if isinstance(begun, Compute):
        text.name(made, text.names.fresh(f"{made.value.name}_{layout_word(made.layout)}"))
    text.module.lines += statement(f"{text.variable(made)} = parallel.wait_conversion({text.sent[begun]})")


def add_interleaved(text: ForwardText, found: Interleave) -> None:
    """Writes the interleaved execution of the same iterations of several loops."""
    segments = [loop.step.segment for loop in found.loops]
    listed = list_gathers(text, found.then) if found.then else ""
    over = [_prefetch_next(loop, found.iterations, "" if place else listed) for place, loop in enumerate(found.loops)]
    words = f"{where(segments[0].span)}{', '.join(map(loop_words, segments))}: interleaved"
    targets, calls = [], list[str]()
    for loop, makes in zip(found.loops, found.makes, strict=True):
        if loop not in text.carried:
            text.carried[loop] = [text.names.fresh(tensor.value.name) for tensor in makes]
        targets.append(_tuple(text.carried[loop]))
    for loop, modules, given in zip(found.loops, over, found.given, strict=True):
        entering = _tuple([text.variable(tensor) for tensor in given])
        calls.append(f"parallel.through({', '.join([modules, entering, *text.captured[loop], 'self'])})")
    if any(skew := start_delays(len(found.loops), text.program.skew)):
        calls.append(f"skew={skew}")
    text.module.lines += statement(f"{', '.join(targets)} = parallel.interleaved({', '.join(calls)})", words)
    for loop, makes in zip(found.loops, found.makes, strict=True):
        text.add(makes, text.carried[loop])


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def _prefetch_next(loop: Loop, numbers: range, behind: str) -> str:
    """The text of the modules of iterations. While one computes, the gathers of the next one are prefetched. During the
    last one these are the gathers `behind` the repeat.
    """
    segment = loop.step.segment
    over = iterations(path("self", segment.name, "_modules"), numbers, segment.count)
    then = gathers_first(loop, numbers.stop) if numbers.stop < segment.count else behind
    if not then and not any(loop.bodies[loop.number(iteration)].first for iteration in numbers):
        return over
    return f"self.gathered.prefetch_next({', '.join(filter(None, (over, then)))})"
