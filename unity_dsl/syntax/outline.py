"""Finds the declarations of a `.uop`, `.udl` or `.rules` text and their places, without parsing it."""

from __future__ import annotations

import re
from itertools import pairwise

from .span import Source, Span

_BEGINNING = re.compile(r"^[^\s#]", re.MULTILINE)
"""The beginning of a line that is neither indented nor a comment."""
_COMMENT = re.compile(r"#[^\n]*")
_CALL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\(")
_RULE = re.compile(r"rule ([A-Za-z_][A-Za-z0-9_]*)\(")
_OPERATOR = re.compile(r"(?:extern )?op ([A-Za-z_][A-Za-z0-9_]*)\(")


def outline(source: Source) -> dict[str, Span] | None:
    """The operators of a text by name, each with its lines and the comments above it, in the order of the text.

    None where the text is not plainly a list of operators with different names; it has to be parsed as a whole.
    """
    return _parts(source, _OPERATOR)


def outline_rules(source: Source) -> dict[str, Span] | None:
    """The rules of a text by name, like `outline`."""
    return _parts(source, _RULE)


def declared_parts(source: Source) -> tuple[Span, ...]:
    """The lines of each declaration, with the comments above it, so that the others can be read if one is faulty."""
    found = [beginning.start() for beginning in _BEGINNING.finditer(source.text) if beginning[0] != ")"]
    starts = [0, *(_with_comments(source.text, start) for start in found[1:])]
    return tuple(Span(source, start, end) for start, end in pairwise([*starts, len(source.text)]))


def called_before_arrow(rule: Span) -> frozenset[str]:
    """Some of the names that the left side of a rule, given by its lines, calls, and no other names.

    The left side of a substitution stands before its arrow, on one line or several. Earlier lines are ignored: they
    hold conditions and local names, which may belong to the right side alone.
    """
    before, arrow, _ = _COMMENT.sub("", rule.text).partition("=>")
    line = before.rstrip() if arrow else ""
    while _open_brackets(line[(start := line.rfind("\n") + 1) :]):
        if not start:
            return frozenset()
        line = line[: start - 1] + " " + line[start:]
    return frozenset(_CALL.findall(line[start:]))


def _open_brackets(text: str) -> bool:
    """Whether a text closes more brackets than it opens, so that its line begins earlier."""
    return sum(text.count(bracket) for bracket in ")]") > sum(text.count(bracket) for bracket in "([")


def _parts(source: Source, declaration: re.Pattern[str]) -> dict[str, Span] | None:
    names, starts = [], []
    for beginning in _BEGINNING.finditer(source.text):
        if head := declaration.match(source.text, beginning.start()):
            names.append(head[1])
            starts.append(_with_comments(source.text, head.start()))
        elif beginning[0] != ")" or not names:  # a list of operands may be closed on a line of its own
            return None
    if len(set(names)) < len(names):
        return None
    ends = [*starts[1:], len(source.text)]
    return {name: Span(source, start, end) for name, start, end in zip(names, starts, ends, strict=True)}


def _with_comments(text: str, start: int) -> int:
    """The beginning of the unbroken run of comments above a line."""
    while start > 0 and text.startswith("#", above := text.rfind("\n", 0, start - 1) + 1):
        start = above
    return start
