"""Tables of a toml file that report where and why an entry is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import float_info
from typing import Any

from ..syntax.diagnostic import InputError, fail, suggest
from ..syntax.span import Source, Span


@dataclass(frozen=True)
class TomlTable:
    """A table and its start in the text, as the toml reader keeps no positions. `place` names the table in messages.

    Any fault of an entry is an InputError with code E304.
    """

    source: Source
    entries: Mapping[str, Any]
    place: str = ""
    start: int = 0

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def only(self, keys: Iterable[str]) -> None:
        known = tuple(keys)
        for key in self.entries:
            if key not in known:
                hint = suggest(key, known) or f"known keys: {', '.join(known)}"
                raise self.fault(key, f"unknown key `{key}`{self.place}", hint)

    def text(self, key: str) -> str:
        value = self._entry(key)
        if not isinstance(value, str) or not value:
            raise self.fault(key, f"`{key}`{self.place} must be a text")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str:
        value = self.text(key)
        if value not in choices:
            words = ", ".join(f"`{choice}`" for choice in choices)
            raise self.fault(key, f"`{key}`{self.place} is one of {words}, not `{value}`", suggest(value, choices))
        return value

    def positive(self, key: str) -> float:
        value = self._entry(key)
        if not _is_positive(value):
            raise self.fault(key, f"`{key}`{self.place} must be a number above 0")
        return float(value)

    def fraction(self, key: str) -> float:
        value = self.positive(key)
        if value > 1:
            raise self.fault(key, f"`{key}`{self.place} is a fraction of the peak, so at most 1")
        return value

    def not_negative(self, key: str) -> float:
        value = self._entry(key)
        if not _is_positive(value) and (isinstance(value, bool) or value != 0):
            raise self.fault(key, f"`{key}`{self.place} must be 0 or a number above 0")
        return float(value)

    def part(self, key: str) -> float:
        """A fraction from 0 to below 1."""
        value = self.not_negative(key)
        if value >= 1:
            raise self.fault(key, f"`{key}`{self.place} is a fraction below 1")
        return value

    def whole(self, key: str) -> int:
        value = self.positive(key)
        if value != int(value):
            raise self.fault(key, f"`{key}` is a whole number, not {value:g}")
        return int(value)

    def flag(self, key: str) -> bool:
        """A boolean; False if the key is missing."""
        value = self.entries.get(key, False)
        if not isinstance(value, bool):
            raise self.fault(key, f"`{key}`{self.place} must be true or false")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """One or more numbers above 0."""
        value = self._entry(key)
        if not isinstance(value, list) or not value or not all(map(_is_positive, value)):
            raise self.fault(key, f"`{key}`{self.place} must be a list of numbers above 0")
        return tuple(map(float, value))

    def array(self, key: str, shape: Sequence[int]) -> Sequence[Any]:
        """Nested lists of this shape, of numbers above 0."""
        value = self._entry(key)
        if not _has_shape(value, shape):
            words = " by ".join(map(str, shape))
            raise self.fault(key, f"`{key}`{self.place} must be {words} numbers above 0, in nested lists")
        found: Sequence[Any] = value
        return found

    def table(self, key: str) -> TomlTable:
        value = self._entry(key)
        if not isinstance(value, dict):
            raise self.fault(key, f"`{key}` must be a table: [{key}]")
        return TomlTable(self.source, value, f" of [{key}]", self._headers(key, 1)[0])

    def tables(self, key: str) -> list[TomlTable]:
        """The tables of an array, at least one."""
        value = self._entry(key)
        if not isinstance(value, list) or not value or not all(isinstance(entry, dict) for entry in value):
            raise self.fault(key, f"there must be one or more [[{key}]]")
        starts = self._headers(key, len(value))
        return [
            TomlTable(self.source, entry, f" of [[{key}]] number {number + 1}", start)
            for number, (entry, start) in enumerate(zip(value, starts, strict=True))
        ]

    def fault(self, key: str, message: str, hint: str = "") -> InputError:
        return fail("E304", message, self._span(key), help=hint)

    def _entry(self, key: str) -> Any:
        if key not in self.entries:
            raise fail("E304", f"`{key}`{self.place} is missing", Span(self.source, self.start, self.start))
        return self.entries[key]

    def _headers(self, key: str, count: int) -> list[int]:
        """The positions of the lines [key] or [[key]] in this table's text; the table's start if they have another
        form.
        """
        lines = re.compile(rf"(?m)^[ \t]*\[+(?:[\w.]+\.)?{re.escape(key)}\]")
        found = [match.start() for match in lines.finditer(self.source.text, self.start)]
        return found[:count] if len(found) >= count else [self.start] * count

    def _span(self, key: str) -> Span:
        """The key in the first line that starts with it; the table's start if there is none."""
        line = re.compile(rf"(?m)^[ \t\[]*(?:[\w.]+\.)?({re.escape(key)})[ \t]*[=\].]")
        match = line.search(self.source.text, self.start)
        return Span(self.source, *match.span(1)) if match else Span(self.source, self.start, self.start)


def _is_positive(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value <= float_info.max


def _has_shape(value: object, shape: Sequence[int]) -> bool:
    if not shape:
        return _is_positive(value)
    return isinstance(value, list) and len(value) == shape[0] and all(_has_shape(part, shape[1:]) for part in value)
