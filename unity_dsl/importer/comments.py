"""Comments of an imported model: its module, the recognised operators, and the inputs that data.py computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from .capture import Captured
from .model_text import ModelText
from .statements import Imported
from .views import Value

RECOGNISED = (
    "causal_attention",
    "full_attention",
    "gelu_tanh",
    "group_norm",
    "masked_attention",
    "masked_cross_entropy",
    "rms_norm",
    "rope",
    "window_attention",
)
"""Library operators that replace several operators of the module, or an argument of one."""


def with_comments(text: ModelText, imported: Imported, captured: Captured) -> ModelText:
    """The text with a head, and with comments after inputs that data.py computes and after repeats."""
    notes = dict(_notes(text, captured))
    lines = tuple(f"{line}  # {notes[row]}" if row in notes else line for row, line in enumerate(text.lines))
    return replace(text, lines=lines, comments=tuple(_head(imported, captured)))


def _head(imported: Imported, captured: Captured) -> Iterator[str]:
    kind = type(captured.module)
    yield f"## `{kind.__qualname__.rpartition('.')[2]}` of {kind.__module__}."
    used = {statement.operator for statement in imported.statements}
    if found := [name for name in RECOGNISED if name in used]:
        yield f"# Recognised: {', '.join(found)}."


def _notes(text: ModelText, captured: Captured) -> Iterator[tuple[int, str]]:
    """The comments of lines, by row."""
    inputs: Mapping[str, Value] = {name: value for value, name in text.inputs.items()}
    for row, (line, path) in enumerate(zip(text.lines, text.paths, strict=True)):
        word, _, rest = line.partition(" ")
        value = inputs.get(rest.partition(":")[0]) if word == "input" else None
        if value is not None and value.constant is not None:
            yield row, "a table that data.py adds to every batch"
        elif value is not None and value.name not in captured.inputs:
            yield row, "data.py computes it of the batch"
        if word == "repeat" and path:
            yield row, f"from {'.'.join(path)} on"
