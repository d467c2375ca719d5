"""Text of operators that only the devices of some coordinates compute: a branch on the device's own coordinates.

All devices make what these operators read, and go on with their results. The other devices have zeros as results, as a
function of the same tensors. So every conversion outside of the branch is in autograd's graph on every device. Autograd
runs them in reverse order of creation, so the collectives have the same order on all devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from ..graph.layout import Layout, Mesh
from ..schedule.ir import Compute, Instruction, Placed, Tensor
from .module_text import ModuleText
from .program_state import Program
from .source_lines import broken, statement


class ForwardText(Protocol):
    """The forward method that is being written. In `plain` text no product has gradients of its own."""

    program: Program
    module: ModuleText
    state: str
    plain: bool

    def instruction(self, instruction: Instruction) -> None:
        """Writes an instruction."""

    def variable(self, tensor: Tensor) -> str:
        """The variable that holds a tensor."""

    def float_type(self, dtype: str) -> str:
        """The text of a float type."""


def add_placed(text: ForwardText, placed: Placed) -> None:
    """Writes operators that only the devices of a placement compute."""
    before, text.module.lines, text.plain = text.module.lines, [], True
    for instruction in placed.body:
        text.instruction(instruction)
        if isinstance(instruction, Compute):
            _agree(text, instruction)
    text.plain = False
    there, text.module.lines = text.module.lines, before
    groups, collectives = f"{text.state}.groups", text.program.collectives
    here = (f"{groups}.{collectives.group((axis,))}.index == {coordinate}" for axis, coordinate in placed.placement)
    text.module.lines += [f"if {' and '.join(here)}:", *(f"    {line}" for line in there)]
    if elsewhere := list(_elsewhere(text, placed)):
        collectives.elsewhere = True
        text.module.lines += ["else:", *(f"    {line}" for line in elsewhere)]


def _agree(text: ForwardText, compute: Compute) -> None:
    """Casts results to the types that the other devices assume, if there are several types. In mixed precision a call
    makes them in the types of its operands.
    """
    if len({tensor.dtype for tensor in compute.makes if tensor.dtype != "int"}) > 1:
        for tensor in compute.makes:
            variable = text.variable(tensor)
            text.module.lines += statement(f"{variable} = {variable}.to({text.float_type(tensor.dtype)})")


def _elsewhere(text: ForwardText, placed: Placed) -> Iterator[str]:
    """Statements for the devices that compute none of the operators: zeros for every value that is read later."""
    given = list(dict.fromkeys(map(text.variable, placed.given)))
    for tensor in placed.makes:
        dtype = "torch.int64" if tensor.dtype == "int" else text.float_type(tensor.dtype)
        shape = tensor.layout.local_shape(tensor.value.shape, text.program.mesh)
        size = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        yield from broken(f"{text.variable(tensor)} = parallel.elsewhere({', '.join([size, dtype, *given])})")


def stored_size(layout: Layout, shape: Sequence[int], mesh: Mesh) -> str:
    """The dimensions of what a device stores of a tensor, as arguments. It stores nothing if only others own the
    tensor.
    """
    local = ", ".join(map(str, layout.local_shape(tuple(shape), mesh)))
    if not layout.placement:
        return local or "()"
    here = ", ".join(f"{mesh.axes[axis].name}={coordinate}" for axis, coordinate in layout.placement)
    return f"*parallel.owned(({local}{',' * (len(shape) == 1)}), {here})"
