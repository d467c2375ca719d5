"""Statements of an imported model: operators of the library on views of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .blocks import Block
from .views import Value, View

EXAMPLES = "{examples}"
"""The number of examples of a batch in the text of a setting."""


@dataclass(eq=False)
class Statement:
    """An operator on views. `path` is that of the module that calls it, `where` the line of its source."""

    operator: str
    operands: tuple[View, ...]
    results: tuple[Value, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    where: str = ""


@dataclass
class Imported:
    """A model as statements, in order: what it reads, its loss and outputs, the buffers that a step updates, and the
    blocks that statements call. `rounded` where it computes exactly what the module has rounded to float32;
    `examples` are those of a batch.
    """

    inputs: list[Value]
    statements: list[Statement]
    loss: View | None
    outputs: list[tuple[str, View]]
    updates: list[tuple[Value, View]]
    blocks: Mapping[str, Block] = field(default_factory=dict)
    rounded: bool = False
    examples: int = 1
