"""Text of operators that the devices of some coordinates alone compute: a branch by the device's own.

All devices make what these operators read of all, and go on with what they leave. What others have instead, zeros, is a
function of the same tensors: so every conversion outside of the branch is in autograd's graph on every device. It takes
them in the reverse of the order in which they were made, and that is the order of the collectives on all devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from ..graph.graph import Value
from ..graph.layout import Layout, Mesh, Placement
from ..graph.placed_order import read_there
from ..graph.plan import PlannedGraph, PlannedNode
from .module_text import ModuleText
from .program_state import Copies, Program
from .source_lines import broken, statement


class ForwardText(Protocol):
    """The forward method that is written."""

    program: Program
    planned: PlannedGraph
    module: ModuleText
    state: str
    leaving: set[str]

    @property
    def held(self) -> Mapping[str, Copies]:
        """The values that exist, by name."""

    def node(self, step: PlannedNode) -> None:
        """Writes an operator."""

    def variable(self, value: Value, layout: Layout, dtype: str | None = None) -> str:
        """The variable that holds a value in a layout."""

    def float_type(self, dtype: str) -> str:
        """The text of a float type."""


def add_placed(text: ForwardText, steps: Sequence[PlannedNode], placement: Placement) -> None:
    """Writes operators that the devices of a placement alone compute."""
    made = {value.name for step in steps for value in step.node.results}
    reads = read_there(steps, placement, lambda value: text.held[value.name].produced, text.program.library)
    given = list(dict.fromkeys(text.variable(*read) for read in reads))
    around = [held for held in text.held.values() if held.produced.placement == placement]
    known = [(held, dict(held.variables), dict(held.cast)) for held in around]
    before, text.module.lines = text.module.lines, []
    for step in steps:
        text.node(step)
        _agree(text, step)
    there, text.module.lines = text.module.lines, before
    for held, variables, cast in known:  # what was converted there is nowhere else
        held.variables, held.cast = variables, cast
    groups, collectives = f"{text.state}.groups", text.program.collectives
    here = (f"{groups}.{collectives.group((axis,))}.index == {coordinate}" for axis, coordinate in placement)
    text.module.lines += [f"if {' and '.join(here)}:", *(f"    {line}" for line in there)]
    if elsewhere := list(_elsewhere(text, steps, made, given)):
        collectives.elsewhere = True
        text.module.lines += ["else:", *(f"    {line}" for line in elsewhere)]


def _agree(text: ForwardText, step: PlannedNode) -> None:
    """Results in the types that the other devices take them to have: where they have several, a call in mixed precision
    makes them in those of what it is given.
    """
    if len({value.dtype for value in step.node.results if value.dtype != "int"}) > 1:
        for value, layout in zip(step.node.results, step.typed.results, strict=True):
            variable = text.held[value.name].variables[layout]
            text.module.lines += statement(f"{variable} = {variable}.to({text.float_type(value.dtype)})")


def _elsewhere(
    text: ForwardText, steps: Sequence[PlannedNode], made: Collection[str], given: Sequence[str]
) -> Iterator[str]:
    """Statements for the devices that compute none of the operators: of all that is read later zeros, from what is
    `given`.
    """
    within = {step.node.name for step in steps}
    others = [step for step in text.planned.graph.steps if step.name not in within]
    later = text.leaving.union(value.name for step in others for value in step.reads)
    for name in (value.name for step in steps for value in step.node.results):
        held = text.held[name]
        held.cast.clear()
        dtype = "torch.int64" if held.value.dtype == "int" else text.float_type(held.value.dtype)
        for layout, variable in held.variables.items() if name in later else ():
            shape = layout.local_shape(held.value.shape, text.program.mesh)
            size = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
            yield from broken(f"{variable} = parallel.elsewhere({', '.join([size, dtype, *given])})")


def stored_size(layout: Layout, shape: Sequence[int], mesh: Mesh) -> str:
    """The dimensions of what a device stores of a tensor, as arguments: nothing, where others alone store it."""
    local = ", ".join(map(str, layout.local_shape(tuple(shape), mesh)))
    if not layout.placement:
        return local or "()"
    here = ", ".join(f"{mesh.axes[axis].name}={coordinate}" for axis, coordinate in layout.placement)
    return f"*parallel.owned(({local}{',' * (len(shape) == 1)}), {here})"
