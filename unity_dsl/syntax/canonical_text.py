"""Writes a syntax tree as text without comments and spans, to be hashed where only the meaning counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass


def canonical_text(node: object) -> str:
    """A syntax tree as text, without comments and spans, so that it depends only on what was declared.

    Fields with default values are left out.
    """
    if isinstance(node, tuple):
        return f"({', '.join(map(canonical_text, node))})"
    if not is_dataclass(node):
        return repr(node)
    parts = [
        f"{field.name}={canonical_text(value)}"
        for field in fields(node)
        if field.name not in ("doc", "span")
        and ((value := getattr(node, field.name)) != field.default or field.default is MISSING)
    ]
    return f"{type(node).__name__}({', '.join(parts)})"


def syntax_nodes(node: object) -> Iterator[object]:
    """Every node of a syntax tree."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += node
        elif is_dataclass(node):
            yield node
            pending += [getattr(node, field.name) for field in fields(node) if field.name != "span"]
