"""Weights that an emitted program gathers together: which they are, and how they are written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..graph.gathered_weights import GatheredWeight, Steps
from ..graph.interleaved_repeats import run_number
from ..graph.layout import Layout
from ..graph.plan import PlannedGraph, PlannedNode, PlannedSegment
from .comment_words import layout_word
from .module_text import ModuleText
from .program_names import Names, path
from .program_state import Copies, Program
from .source_lines import WIDTH, broken, statement


@dataclass(frozen=True)
class Gather:
    """A weight, stored in slices, that one operator reads gathered."""

    name: str
    stored: Layout
    layout: Layout
    conversion: str

    @property
    def variable(self) -> str:
        """The wanted name of the variable that holds it gathered."""
        return f"{self.name}_{layout_word(self.layout)}"

    @property
    def pair(self) -> str:
        return f"(parallel.{self.conversion}, {path('self', self.name, '_parameters')})"


@dataclass(frozen=True)
class Ungathered:
    """What an operator reads gathered over `sync` or `groups`, until then: as the program lists it, if it does so."""

    gathers: Sequence[Gather]
    over: str
    given: str = ""


class ForwardText(Protocol):
    """The forward method that is written. What is gathered later is `announced`, by what its conversions run over, or
    by name `ungathered`.
    """

    program: Program
    planned: PlannedGraph
    module: ModuleText
    names: Names
    state: str
    detached: bool
    announced: dict[str, str]
    ungathered: dict[str, Ungathered]

    @property
    def held(self) -> Mapping[str, Copies]:
        """The values that exist, by name."""


def find_gathers(
    steps: Iterable[PlannedNode | PlannedSegment], planned: PlannedGraph, program: Program
) -> dict[str, list[Gather]]:
    """The weights that are gathered for operators among these steps of a graph, by what their conversions run over:
    `sync` or `groups`.
    """
    found: dict[str, list[Gather]] = {}
    for weights in program.weights.together(planned, steps):
        over = "sync" if weights[0].conversion.ends_in_sum else "groups"
        found[over] = [_gather(weight, program) for weight in weights]
    return found


def _gather(weight: GatheredWeight, program: Program) -> Gather:
    stored, layout = weight.stored, weight.gathered
    conversion = program.collectives.between(weight.conversion, stored, layout, weight.value.shape, deferred=True)
    return Gather(weight.value.name, stored, layout, conversion.name)


def pairs(gathers: Sequence[Gather]) -> str:
    """The text of a list of conversions with their weights."""
    return f"[{', '.join(gather.pair for gather in gathers)}]"


def targets(names: Sequence[str]) -> str:
    """The left side of an assignment of several values, in brackets where it may be broken into lines."""
    joined = ", ".join(names)
    return joined if 1 < len(names) < 4 else f"({joined}{',' if len(names) == 1 else ''})"


def conversions(gathers: Sequence[Gather]) -> str:
    """What happens to them, as a comment."""
    return ", ".join(dict.fromkeys(f"{gather.stored} -> {gather.layout}" for gather in gathers))


def add_gathers(text: ForwardText, steps: Sequence[PlannedNode], following: Steps) -> None:
    """Writes how the weights are gathered that these operators read. Where they are the model's own, all that has not
    begun before begins here, and what a loop behind them reads first; each waits for what it reads.
    """
    own = text.state == "self" and not text.detached
    placed, starts, found = any(step.placement for step in steps), list[str](), _gathers_of(text, steps)
    entering = _entering(text, following) if own else ""
    for over, gathers in found.items():
        if own and over == "sync" and over not in text.announced and not placed:
            starts += _gather_apart(text, steps, gathers, at_once=not entering)
        elif over not in text.announced or not own:
            add_gathered(text, Ungathered(gathers, over))
    if starts or entering:
        text.program.gathered = True
        text.module.lines += statement(f"self.gathered.start({', '.join(filter(None, (*starts, entering)))})")
    for over, gathers in found.items():
        if own and over in text.announced:
            add_gathered(text, Ungathered(gathers, over))


def add_gathered(text: ForwardText, found: Ungathered) -> None:
    """Writes that weights are gathered, or waited for if that has begun."""
    gathers, over, lines = found.gathers, f"{text.state}.{found.over}", text.module.lines
    text.program.gathered = True
    names = [text.names.fresh(gather.variable) for gather in gathers]
    call, given = f"{targets(names)} = {text.state}.gathered(", found.given or text.announced.pop(found.over, "")
    if not given and text.state != "self" and not text.module.gathers:
        text.module.gathers, given = broken(f"return {pairs(gathers)}"), "self.gathers()"
    elif not given:
        given = pairs(gathers)
        if len(f"{call}{given}, {over})") > WIDTH:
            given = _listed(text, gathers)
    lines += statement(f"{call}{given}, {over})", conversions(gathers))
    for gather, name in zip(gathers, names, strict=True):
        text.held[gather.name].variables[gather.layout] = name
        text.ungathered.pop(gather.name, None)


def announce(text: ForwardText, following: Steps) -> str:
    """A variable that lists what the operators that follow a loop gather in buckets; empty if that is nothing."""
    if gathers := _gathers_of(text, following).get("sync"):
        text.announced["sync"] = _listed(text, gathers)
    return text.announced.get("sync", "")


def gathers_first(step: PlannedSegment, modules: Sequence[ModuleText], iteration: int) -> str:
    """What an iteration of a repeat gathers first; empty if that is nothing."""
    gathers = modules[run_number(step, iteration)].gathers
    return f"{path('self', step.segment.name, '_modules')}[{iteration}].gathers()" if gathers else ""


def _gathers_of(text: ForwardText, steps: Iterable[PlannedNode | PlannedSegment]) -> dict[str, list[Gather]]:
    return {} if text.detached else find_gathers(steps, text.planned, text.program)


def _listed(text: ForwardText, gathers: Sequence[Gather]) -> str:
    """A variable that holds what is to be gathered."""
    variable = text.names.fresh("gathers")
    text.module.lines += statement(f"{variable} = {pairs(gathers)}")
    return variable


def _gather_apart(
    text: ForwardText, steps: Sequence[PlannedNode], gathers: Sequence[Gather], *, at_once: bool
) -> list[str]:
    """What is begun before the first operator, all together. Nothing if the first reads all, and may gather it itself,
    `at_once`.
    """
    read = ([value.name for value in step.node.arguments] for step in steps)
    counts = [count for names in read if (count := sum(gather.name in names for gather in gathers))]
    first, several = gathers[0].name in (value.name for value in steps[0].node.arguments), len(counts) > 1
    listed = "" if first and at_once and not several else _listed(text, gathers)
    begin = 0
    for count in counts:
        end = begin + count
        given = f"{listed}[{begin or ''}:{'' if end == len(gathers) else end}]" if several else listed
        some = Ungathered(gathers[begin:end], "sync", given)
        text.ungathered.update((gather.name, some) for gather in some.gathers)
        begin = end
    return [listed] if listed else []


def _entering(text: ForwardText, following: Steps) -> str:
    """What the first iteration of the repeat that comes next gathers first, and of those in turns with it."""
    program, found = text.program, list[str]()
    for step in program.weights.entered(following):
        for weight in program.weights.first(step.runs[0].body):
            _gather(weight, program)  # their functions stand in parallel.py in the order in which they first run
        found.append(f"{path('self', step.segment.name, '_modules')}[0].gathers()")
    return found[0] if len(found) == 1 else f"[{', '.join(f'*{each}' for each in found)}]" if found else ""
