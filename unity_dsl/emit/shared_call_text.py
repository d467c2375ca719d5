"""Text of operators that share one call with others: concatenations of parts, slices of one tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..graph.graph import Value
from ..graph.layout import Layout
from ..graph.plan import PlannedNode
from ..graph.shared_calls import SharedCalls
from .comment_words import origin
from .interleaved_text import Travelling, arrive
from .program_state import Copies
from .source_lines import statement
from .torch_text import split_text


class ForwardText(Travelling, Protocol):
    """The forward method that is written; `joined` are the variables of parts that are joined later."""

    leaving: set[str]
    shared: SharedCalls
    joined: dict[str, list[str]]

    @property
    def held(self) -> Mapping[str, Copies]:
        """The values that exist, by name."""

    def variable(self, value: Value, layout: Layout, dtype: str | None = None) -> str:
        """The variable that holds a value in a layout."""

    def add(self, value: Value, variable: str, layout: Layout, *, parameter: bool = False) -> None:
        """A value that exists from here on."""

    def roles(self, step: PlannedNode) -> str:
        """What each mesh axis does for an operator."""


def is_shared(text: ForwardText, step: PlannedNode) -> bool:
    """Whether an operator shares a call with others. It is written with the last concatenation, the first slice."""
    node, name = step.node, step.node.results[0].name
    if name in text.held:
        return True  # a slice
    if (dim := text.shared.joined_along(step)) is not None:
        parts: list[str] = []
        for value, layout in zip(node.arguments, step.typed.arguments, strict=True):
            parts += text.joined.pop(value.name, ()) or [text.variable(value, layout)]
        if name not in text.leaving and text.shared.joined_later(step):
            text.joined[name] = parts
            return True
        arrive(text, parts)
        if longer := len(parts) > len(node.arguments):
            _bind(text, [step], f"torch.cat([{', '.join(parts)}], {dim})")
        return longer
    if (found := text.shared.slices(step)) is None:
        return False
    dim, slices = found
    source = text.variable(node.arguments[0], step.typed.arguments[0])
    arrive(text, [source])
    _bind(text, [other for other, _ in slices], split_text(source, dim, [length for _, length in slices]))
    return True


def _bind(text: ForwardText, steps: Sequence[PlannedNode], call: str) -> None:
    """The results of operators, which one call returns in this order."""
    names = [text.names.fresh(step.node.results[0].name) for step in steps]
    words = "; ".join(dict.fromkeys(origin(step.node, text.roles(step)) for step in steps))
    text.module.lines += statement(f"{', '.join(names)} = {call}", words)
    for step, name in zip(steps, names, strict=True):
        text.add(step.node.results[0], name, step.typed.results[0])
