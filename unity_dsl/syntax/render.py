"""Renders diagnostics as plain text."""

from __future__ import annotations

import re
from unicodedata import combining, east_asian_width

from .diagnostic import Diagnostic
from .span import Span

TAB = 4
LONGEST = 120  # characters of a line that are shown
LONGEST_WORD = 200  # of a message: a path may be long, a name of thousands of letters is shown in part
LONGEST_TEXT = 800


def render(diagnostic: Diagnostic) -> str:
    """The text of a diagnostic, without a final newline.

    ops/linear.uop:3:31: error[E101]: index `k` is not bound
      |  y[b.., o] = sum(i) x[b.., k] * w[o, i]
      |                            ^ did you mean `i`?
    help: unityc explain E101
    """
    place = f"{diagnostic.span}: " if diagnostic.span else ""
    kind = "warning" if diagnostic.code.startswith("W") else "error"
    lines = [f"{place}{kind}[{diagnostic.code}]: {shortened(diagnostic.message)}"]
    if diagnostic.span:
        lines += _excerpt(diagnostic.span, shortened(diagnostic.label))
    elif diagnostic.label:
        lines.append(f"  |  {shortened(diagnostic.label)}")
    for note in diagnostic.notes:
        lines.append(f"{note.span}: note: {shortened(note.text)}")
        lines += _excerpt(note.span, "")
    lines += [f"help: {shortened(line)}" for line in diagnostic.help.splitlines() if line]
    lines.append(f"help: unityc explain {diagnostic.code}")
    return "\n".join(lines)


def shortened(text: str) -> str:
    """A message as one line that fits a screen: the middle of long words, and then that of the whole text, is left
    out.
    """
    shown = _display(" ".join(text.splitlines()))
    words = re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: _without_middle(word[0], LONGEST_WORD // 2), shown)
    return _without_middle(words, LONGEST_TEXT)


def _without_middle(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"


def _excerpt(span: Span, label: str) -> list[str]:
    """The first line of a span without its indentation, and a line of carets under it."""
    number, column = span.source.position(span.start)
    line = span.source.line(number).rstrip()
    if not line:
        return [f"  |  {label}"] if label else []
    margin = len(line) - len(line.lstrip())
    start = column - 1
    stop = max(min(start + span.end - span.start, len(line)), start + 1)
    margin = min(margin, start)
    line, margin, start, stop = _window(line, margin, start, stop)
    shown, pad = _display(line[margin:]), _width(line[margin:start])
    carets = "^" * max(_width(line[start:stop]), 1)
    pointer = " " * (pad + max(0, start - len(line))) + carets
    return [f"  |  {shown}".rstrip(), f"  |  {pointer} {label}".rstrip()]


def _window(line: str, margin: int, start: int, stop: int) -> tuple[str, int, int, int]:
    """The part of a long line around its span, with `…` where something is left out, and the places within it."""
    if len(line) - margin <= LONGEST:
        return line, margin, start, stop
    first = max(margin, start - LONGEST // 2)
    last = first + LONGEST
    before, after = "…" if first > margin else "", "…" if last < len(line) else ""
    shift = len(before) - first
    return before + line[first:last] + after, 0, start + shift, min(stop, last) + shift


def _display(text: str) -> str:
    """Tabs as spaces; characters that would move the cursor or hide as question marks."""
    return "".join(
        " " * TAB if char == "\t" else char if char.isprintable() or combining(char) else "?" for char in text
    )


def _width(text: str) -> int:
    """The columns of a terminal that a text takes."""
    return sum(
        TAB if char == "\t" else 0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )
