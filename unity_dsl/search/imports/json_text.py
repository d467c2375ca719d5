"""JSON whose parts know their position in the text, so that errors can be shown there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from json import JSONDecodeError, JSONDecoder

from ...syntax.diagnostic import InputError, fail
from ...syntax.span import Source, Span

DEEPEST = 32
"""How deeply lists and tables may be nested: the files that are read have ten levels."""
_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][-+]?[0-9]+)?(?![0-9])")
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_STRINGS = JSONDecoder()


@dataclass(frozen=True)
class Json:
    """A value with its span. The values of tables and lists have spans too."""

    value: dict[str, Json] | list[Json] | str | int | float | bool | None
    span: Span

    def refused(self, message: str, help: str = "") -> InputError:
        """The error E321 about this part of a plan."""
        return fail("E321", message, self.span, help=help)

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def __getitem__(self, name: str) -> Json:
        """A field of a table. Raises E321."""
        table = self.table()
        if name not in table:
            raise self.refused(f"the field `{name}` is missing")
        return table[name]

    def field(self, name: str, otherwise: Json) -> Json:
        """A field, or `otherwise` if this is no table that has it."""
        return self.value.get(name, otherwise) if isinstance(self.value, dict) else otherwise

    def table(self) -> dict[str, Json]:
        if not isinstance(self.value, dict):
            raise self.refused("this is no table `{…}`")
        return self.value

    def items(self) -> list[Json]:
        if not isinstance(self.value, list):
            raise self.refused("this is no list `[…]`")
        return self.value

    def pair(self) -> tuple[Json, Json]:
        if len(self.items()) != 2:
            raise self.refused("this is no list of two")
        first, second = self.items()
        return first, second

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.refused("this is no text")
        return self.value

    def number(self, least: int = 0) -> int:
        """A whole number of at least `least`."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < least:
            raise self.refused(f"this is no whole number of {least} or more")
        return self.value

    def numbers(self) -> list[Json]:
        """The whole numbers of a text with commas, `4,4,2`, or of a list."""
        if isinstance(self.value, list):
            return self.value
        found, start = [], self.span.start + 1
        for part in self.text().split(","):
            span = Span(self.span.source, start, start + len(part))
            if not re.fullmatch(r" *[0-9]{1,9} *", part):
                raise Json(part, span).refused("this is no whole number")
            found.append(Json(int(part), span))
            start += len(part) + 1
        return found


def parse_json(source: Source) -> Json:
    """The value of a text. Raises E321, with the position, if it is no JSON or is nested too deeply."""
    reader = _Reader(source)
    found = reader.value(reader.blank(0), 0)
    if (end := reader.blank(found.span.end)) < len(source.text):
        raise reader.refused(end, "there is more after the end of the value")
    return found


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source, self.text, self.end = source, source.text, 0

    def refused(self, at: int, what: str) -> InputError:
        at = min(at, max(0, len(self.text) - 1))
        help = "is this the file you meant?"
        return fail("E321", f"this is no JSON: {what}", Span(self.source, at, at + 1), help=help)

    def blank(self, at: int) -> int:
        found = _BLANK.match(self.text, at)
        return at if found is None else found.end()

    def value(self, at: int, depth: int) -> Json:
        if depth > DEEPEST:
            raise self.refused(at, "lists and tables are nested too deeply")
        match self.text[at : at + 1]:
            case "{":
                fields: dict[str, Json] = {}
                for start in self.parts(at, "}"):
                    name, after = self.string(start)
                    after = self.blank(after)
                    if self.text[after : after + 1] != ":":
                        raise self.refused(after, "a colon is missing")
                    if name in fields:
                        raise self.refused(start, f"`{name}` is there twice")
                    fields[name] = self.value(self.blank(after + 1), depth + 1)
                    self.end = fields[name].span.end
                return Json(fields, Span(self.source, at, self.end))
            case "[":
                listed: list[Json] = []
                for start in self.parts(at, "]"):
                    listed.append(self.value(start, depth + 1))
                    self.end = listed[-1].span.end
                return Json(listed, Span(self.source, at, self.end))
            case '"':
                text, end = self.string(at)
                return Json(text, Span(self.source, at, end))
        if (found := _NUMBER.match(self.text, at)) is not None:
            whole = found[1] is None and found[2] is None
            return Json(int(found[0]) if whole else float(found[0]), Span(self.source, at, found.end()))
        for word, meant in _WORDS.items():
            if self.text.startswith(word, at):
                return Json(meant, Span(self.source, at, at + len(word)))
        raise self.refused(at, "a value is missing")

    def parts(self, at: int, closing: str) -> Iterator[int]:
        """Yields where each part of a list or a table begins. Before it asks for the next, the caller sets `end` to the
        end of the part. In the end, `end` is the end of the whole.
        """
        at = self.blank(at + 1)
        if self.text[at : at + 1] != closing:
            while True:
                yield at
                at = self.blank(self.end)
                if self.text[at : at + 1] == closing:
                    break
                if self.text[at : at + 1] != ",":
                    raise self.refused(at, f"a comma or `{closing}` is missing")
                at = self.blank(at + 1)
        self.end = at + 1

    def string(self, at: int) -> tuple[str, int]:
        """A text and its end."""
        if self.text[at : at + 1] != '"':
            raise self.refused(at, "a text is missing")
        try:
            found: tuple[str, int] = _STRINGS.raw_decode(self.text, at)
        except JSONDecodeError as error:
            raise self.refused(error.pos, error.msg[0].lower() + error.msg[1:]) from None
        return found
