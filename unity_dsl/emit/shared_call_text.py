"""Text of operators that share one call with others: concatenations of parts, slices of one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..graph.plan import PlannedNode
from ..schedule.ir import Compute, Function, Tensor
from .comment_words import origin
from .module_text import ModuleText
from .program_names import Names
from .program_state import Program
from .source_lines import statement
from .torch_text import split_text


class ForwardText(Protocol):
    """The forward method that is being written."""

    program: Program
    function: Function
    module: ModuleText
    names: Names

    def variable(self, tensor: Tensor) -> str:
        """The variable that holds a tensor."""

    def add(self, tensors: Sequence[Tensor], variables: Sequence[str]) -> None:
        """Names values that exist from here on, in these variables."""

    def roles(self, step: PlannedNode) -> str:
        """What each mesh axis does for an operator."""


def add_joined(text: ForwardText, compute: Compute) -> None:
    """Writes the last of several concatenations, which joins the parts of all."""
    parts = ", ".join(map(text.variable, compute.parts))
    _bind(text, [compute.step], compute.makes, f"torch.cat([{parts}], {compute.along})")


def add_split(text: ForwardText, compute: Compute) -> None:
    """Writes the first of the operators that slice a tensor: one split for all of them."""
    steps, makes = zip(*compute.slices, strict=True)
    mesh, dim = text.program.mesh, compute.along
    lengths = [tensor.layout.local_shape(tensor.value.shape, mesh)[dim] for tensor in makes]
    _bind(text, steps, makes, split_text(text.variable(compute.reads[0]), dim, lengths))


def _bind(text: ForwardText, steps: Sequence[PlannedNode], makes: Sequence[Tensor], call: str) -> None:
    """Binds the results of operators, which one call returns in this order."""
    names = [text.names.fresh(tensor.value.name) for tensor in makes]
    words = "; ".join(dict.fromkeys(origin(step.node, text.roles(step)) for step in steps))
    text.module.lines += statement(f"{', '.join(names)} = {call}", words)
    text.add(makes, names)
