"""Formats source text: two spaces per block, fixed spacing, every comment kept.

It works on tokens, not on trees, so that nothing outside the tree gets lost. Line breaks inside brackets stay where
they are. Laws: format(format(s)) == format(s), and parse(format(s)) == parse(s).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from lark import Token

from .grammar import grammar
from .parse_model import parse_model
from .parse_ops import parse_ops
from .parse_rules import parse_rules
from .spacing import space_tokens
from .span import Source
from .token_lines import Layout, lay_out

INDENT = 2
CONTINUATION = 4


def format_ops(source: Source) -> str:
    """The text of a `.uop` file in canonical layout. Raises what `parse_ops` raises."""
    parse_ops(source)
    return _format(source, "uop")


def format_model(source: Source) -> str:
    """The text of a `.udl` file in canonical layout. Raises what `parse_model` raises."""
    parse_model(source)
    return _format(source, "udl")


def format_rules(source: Source) -> str:
    """The text of a `.rules` file in canonical layout. Raises what `parse_rules` raises."""
    parse_rules(source)
    return _format(source, "rules")


@dataclass(frozen=True)
class _Line:
    """One physical line. `number` is its number in the source; `start` marks the first line of a logical one."""

    number: int
    indent: int
    tokens: tuple[Token, ...] = ()
    comment: Token | None = None
    start: bool = False
    text: str = ""


def _format(source: Source, language: str) -> str:
    layout = lay_out(source, grammar(language))
    lines = [replace(line, text=text) for line, text in _spaced(_lines(layout), language)]
    return "".join(f"{text}\n" for text in _separated(lines, _aligned(lines)))


def _lines(layout: Layout) -> list[_Line]:
    """The physical lines that are not empty, with their new indentation."""
    reader = _Reader(layout)
    for item in sorted((*layout.tokens, *layout.comments), key=_order):
        reader.take(item)
    return reader.finish()


def _order(token: Token) -> tuple[int, int]:
    """A sort key by place. A block token, which is empty, comes before the word at its place."""
    return token.start_pos or 0, token.end_pos or 0


@dataclass
class _Reader:
    """Groups tokens into physical lines while it keeps track of blocks and brackets."""

    layout: Layout
    lines: list[_Line] = field(default_factory=list)
    waiting: list[Token] = field(default_factory=list)  # comments on lines of their own, until it is known what follows
    widths: list[int] = field(default_factory=lambda: [0])  # the original indentation of the open blocks
    widths_before: list[int] = field(default_factory=lambda: [0])  # the same where the last statement ended
    brackets: int = 0
    begun: bool = False

    def take(self, token: Token) -> None:
        if token.type == "_INDENT":
            self.widths.append((token.column or 1) - 1)
        elif token.type == "_DEDENT":
            self.widths.pop()
        elif token.type == "_NL":
            self.begun = False
            self.widths_before = list(self.widths)
        elif token.type == "COMMENT":
            self._comment(token)
        else:
            self._word(token)

    def finish(self) -> list[_Line]:
        self._flush()
        return self.lines

    def _word(self, token: Token) -> None:
        self._flush()
        number = token.line or 0
        if self.lines and self.lines[-1].number == number:
            last = self.lines[-1]
            self.lines[-1] = replace(last, tokens=(*last.tokens, token))
        else:
            base = INDENT * (len(self.widths) - 1)
            inner = self.begun and not (self.brackets == 1 and token in (")", "]"))
            indent = base + (CONTINUATION if inner else 0)
            self.lines.append(_Line(number, indent, (token,), start=not self.begun))
        self.begun = True
        self.brackets += (token in ("(", "[")) - (token in (")", "]"))

    def _comment(self, token: Token) -> None:
        if self.lines and self.lines[-1].number == token.line:
            self.lines[-1] = replace(self.lines[-1], comment=token)
        elif self.begun:
            indent = INDENT * (len(self.widths) - 1) + CONTINUATION
            self.lines.append(_Line(token.line or 0, indent, comment=token))
        else:
            self.waiting.append(token)

    def _flush(self) -> None:
        """Places comments between two statements in the block that their own indentation suggests, if possible."""
        after = len(self.widths) - 1
        for comment in self.waiting:
            column = (comment.column or 1) - 1
            within = sum(width <= column for width in self.widths_before) - 1
            depth = max(after, within) if len(self.widths_before) > len(self.widths) else after
            self.lines.append(_Line(comment.line or 0, INDENT * depth, comment=comment))
        self.waiting = []


def _spaced(lines: Iterable[_Line], language: str) -> Iterator[tuple[_Line, str]]:
    """Each line with its spaced text. Spacing depends on the logical line, so it is computed for all of it at once."""
    group: list[_Line] = []
    for line in (*lines, None):
        if group and (line is None or line.start or not group[0].start):
            yield from _spaced_group(group, language)
            group = []
        if line is not None:
            group.append(line)


def _spaced_group(group: list[_Line], language: str) -> Iterator[tuple[_Line, str]]:
    spaces = iter(space_tokens([token for line in group for token in line.tokens], language))
    for line in group:
        text = "".join(" " * next(spaces) + str(token) for token in line.tokens)
        yield line, " " * line.indent + text.lstrip() if text else ""


def _aligned(lines: list[_Line]) -> list[int]:
    """The column of each line's trailing comment, the same for consecutive lines."""
    columns = [len(line.text) + 2 for line in lines]
    first = 0
    for position in range(len(lines) + 1):
        if position == len(lines) or not _joins(lines, position):
            width = max(columns[first:position], default=0)
            columns[first:position] = [width] * (position - first)
            first = position
    return columns


def _joins(lines: list[_Line], position: int) -> bool:
    """Whether the comments of a line and of the one above it are aligned."""
    if position == 0:
        return True
    above, line = lines[position - 1], lines[position]
    both = all(part.tokens and part.comment is not None for part in (above, line))
    return both and line.number == above.number + 1


def _separated(lines: list[_Line], columns: list[int]) -> Iterator[str]:
    """The lines' text. The author's blank lines are kept, at most one in a row; some are added around declarations
    with a body.
    """
    for position, (line, column) in enumerate(zip(lines, columns, strict=True)):
        if position and _blank_between(lines, position):
            yield ""
        yield _with_comment(line, column)


def _with_comment(line: _Line, column: int) -> str:
    if line.comment is None:
        return line.text
    comment = str(line.comment).rstrip()
    return f"{line.text:<{column}}{comment}" if line.text else " " * line.indent + comment


def _blank_between(lines: list[_Line], position: int) -> bool:
    above, line = lines[position - 1], lines[position]
    if not line.start and line.tokens:
        return False  # inside brackets
    if above.start and _first_word_after(lines, position).indent > above.indent and line.indent > above.indent:
        return False  # a header and its body
    if line.number > above.number + 1:
        return True
    return above.indent > 0 and _first_word_after(lines, position).indent == 0 and line.indent == 0


def _first_word_after(lines: list[_Line], position: int) -> _Line:
    """The first line from here on that has more than a comment."""
    return next((line for line in lines[position:] if line.tokens), lines[position])
