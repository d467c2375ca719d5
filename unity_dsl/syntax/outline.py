"""Finds the operators that a `.uop` text declares, and where, without parsing it."""

from __future__ import annotations

import re

from .span import Source, Span

_BEGINNING = re.compile(r"^[^\s#]", re.MULTILINE)
"""Where a line begins that is neither indented nor a comment."""
_OPERATOR = re.compile(r"(?:extern )?op ([A-Za-z_][A-Za-z0-9_]*)\(")


def outline(source: Source) -> dict[str, Span] | None:
    """The operators of a text by name, each with its lines and the comments above it, in the order of the text.

    None where the text is not plainly a list of operators with different names: that has to be parsed as a whole.
    """
    names, starts = [], []
    for beginning in _BEGINNING.finditer(source.text):
        if head := _OPERATOR.match(source.text, beginning.start()):
            names.append(head[1])
            starts.append(_with_comments(source.text, head.start()))
        elif beginning[0] != ")" or not names:  # a list of operands may be closed on a line of its own
            return None
    if len(set(names)) < len(names):
        return None
    ends = [*starts[1:], len(source.text)]
    return {name: Span(source, start, end) for name, start, end in zip(names, starts, ends, strict=True)}


def _with_comments(text: str, start: int) -> int:
    """Where the unbroken run of comments above a line begins."""
    while start > 0 and text.startswith("#", above := text.rfind("\n", 0, start - 1) + 1):
        start = above
    return start
