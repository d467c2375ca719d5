"""Text of weights that are all-gathered together: the statements that start a gather or wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..schedule.ir import AwaitGathers, Convert, Function, Loop, StartGathers, Tensor
from .comment_words import layout_word
from .module_text import ModuleText
from .program_names import Names, path
from .program_state import Program
from .source_lines import WIDTH, broken, statement


class ForwardText(Protocol):
    """The forward method that is being written. `listed` has the variables of gathers that are waited for later."""

    program: Program
    function: Function
    module: ModuleText
    names: Names
    state: str
    listed: dict[tuple[Convert, ...], str]

    def name(self, tensor: Tensor, variable: str) -> None:
        """Records the variable that holds a tensor from here on."""


def add_start(text: ForwardText, start: StartGathers) -> None:
    """Writes the start of gathers: of weights, and of what loops gather first."""
    text.program.gathered = True
    given = [list_gathers(text, start.gathers)] if start.gathers else []
    entering = [_entered(text, loop) for loop in start.entering]
    given += entering if len(entering) == 1 else [f"[{', '.join(f'*{each}' for each in entering)}]"] * bool(entering)
    text.module.lines += statement(f"self.gathered.start({', '.join(given)})")


def _entered(text: ForwardText, loop: Loop) -> str:
    """The text of what the first iteration of a loop gathers first."""
    for gather in loop.bodies[0].first:
        _function(text, gather)  # parallel.py has the functions in the order in which they first run
    return f"{path('self', loop.step.segment.name, '_modules')}[0].gathers()"


def add_awaited(text: ForwardText, awaited: AwaitGathers) -> None:
    """Writes that weights are gathered, or waited for if their gather was started."""
    gathers, lines = awaited.gathers, text.module.lines
    over = f"{text.state}.{'sync' if gathers[0].parameter else 'groups'}"
    text.program.gathered = True
    pairs = list_pairs(text, gathers)
    names = [text.names.fresh(f"{gather.value.name}_{layout_word(gather.makes.layout)}") for gather in gathers]
    call = f"{_targets(names)} = {text.state}.gathered("
    if awaited.among:
        given = _sliced(text.listed[awaited.among], awaited)
    elif gathers is text.function.first:
        text.module.gathers, given = broken(f"return {pairs}"), "self.gathers()"
    else:
        given = pairs
        if len(f"{call}{given}, {over})") > WIDTH:
            given = list_gathers(text, gathers)
    comment = ", ".join(dict.fromkeys(f"{gather.source} -> {gather.makes.layout}" for gather in gathers))
    lines += statement(f"{call}{given}, {over})", comment)
    for gather, name in zip(gathers, names, strict=True):
        text.name(gather.makes, name)


def _sliced(listed: str, awaited: AwaitGathers) -> str:
    """The text of the listed gathers that are waited for."""
    count, every = len(awaited.gathers), awaited.among
    if count == len(every):
        return listed
    begin = every.index(awaited.gathers[0])
    return f"{listed}[{begin or ''}:{'' if begin + count == len(every) else begin + count}]"


def list_gathers(text: ForwardText, gathers: tuple[Convert, ...]) -> str:
    """The variable that holds a list of gathers, which is written on first use."""
    if gathers not in text.listed:
        pairs = list_pairs(text, gathers)
        text.listed[gathers] = text.names.fresh("gathers")
        text.module.lines += statement(f"{text.listed[gathers]} = {pairs}")
    return text.listed[gathers]


def gathers_first(loop: Loop, iteration: int) -> str:
    """The text of what an iteration of a loop gathers first; empty if that is nothing."""
    gathers = loop.bodies[loop.number(iteration)].first
    return f"{path('self', loop.step.segment.name, '_modules')}[{iteration}].gathers()" if gathers else ""


def list_pairs(text: ForwardText, gathers: Sequence[Convert]) -> str:
    """The text of a list of conversions with their weights."""
    pairs = [(_function(text, gather), path("self", gather.value.name, "_parameters")) for gather in gathers]
    return f"[{', '.join(f'(parallel.{function}, {weight})' for function, weight in pairs)}]"


def _function(text: ForwardText, gather: Convert) -> str:
    """The name of a weight's conversion in parallel.py."""
    source, target, shape = gather.source, gather.makes.layout, gather.value.shape
    return text.program.collectives.between(gather.conversion, source, target, shape, deferred=True).name


def _targets(names: Sequence[str]) -> str:
    """The left side of an assignment. It is in brackets for a single value, and for four or more, which may be broken
    into lines.
    """
    joined = ", ".join(names)
    return joined if 1 < len(names) < 4 else f"({joined}{',' if len(names) == 1 else ''})"
