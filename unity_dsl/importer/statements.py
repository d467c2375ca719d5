"""Statements of an imported model: library operators on views of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .blocks import Block
from .views import Value, View

EXAMPLES = "{examples}"
"""The placeholder of the number of examples of a batch in the text of a setting."""


STOPPING = {"stop", "top_k"}
"""Operators through which no gradient passes."""
DRAWING = {"dropout", "row_dropout"}
"""Operators that draw new random numbers at each call."""


@dataclass(eq=False)
class Statement:
    """An operator on views. `path` is the module that calls it, `where` the line of its source."""

    operator: str
    operands: tuple[View, ...]
    results: tuple[Value, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    where: str = ""


@dataclass
class Imported:
    """A model as statements in order, with its inputs, its loss, its outputs and their keys (or none), the buffers
    that a step updates, and the blocks that statements call. `rounded` says that it computes exactly what the module
    has rounded to float32. `examples` is the number of examples in a batch.
    """

    inputs: list[Value]
    statements: list[Statement]
    loss: View | None
    outputs: list[tuple[str, View]]
    updates: list[tuple[Value, View]]
    blocks: Mapping[str, Block] = field(default_factory=dict)
    rounded: bool = False
    examples: int = 1

    @property
    def left(self) -> set[Value]:
        """The values that the model leaves: its loss, its outputs, and the new values of buffers."""
        return {view.value for _, view in (*self.outputs, *self.updates)} | ({self.loss.value} if self.loss else set())

    def untrained(self) -> list[Value]:
        """The weights that no gradient of the loss reaches: it is stopped on every path, or only outputs read them."""
        reached = set() if self.loss is None else {self.loss.value}
        weights = dict[Value, None]()
        for statement in reversed(self.statements):
            if statement.operator not in STOPPING and not reached.isdisjoint(statement.results):
                reached |= {operand.value for operand in statement.operands}
            weights |= dict.fromkeys(one.value for one in statement.operands if one.value.kind == "weight")
        return [weight for weight in reversed(weights) if weight not in reached]


def reading(statements: Iterable[Statement], shown: Mapping[Value, View]) -> list[Statement]:
    """The statements, which read the views `shown` in place of these values. Raises Unarranged."""

    def seen(view: View) -> View:
        return view.within(shown[view.value]) if view.value in shown else view

    return [replace(statement, operands=tuple(map(seen, statement.operands))) for statement in statements]
