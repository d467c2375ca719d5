"""Reads TOML texts: their entries, or the place of a fault."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from .diagnostic import fail
from .span import Source, Span

_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$| \(at end of document\)$")
"""The place that tomllib adds at the end of its message."""


def toml_entries(source: Source, code: str) -> dict[str, Any]:
    """The entries of a text. Raises the error of that code, at the fault, if it is not TOML."""
    try:
        return tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _PLACE.search(message)
        if place is None or place[1] is None:
            start = len(source.text.rstrip()) if place else 0
        else:
            start = source.line_starts[int(place[1]) - 1] + int(place[2]) - 1
        words = _PLACE.sub("", message)
        raise fail(code, f"not a toml file: {words[0].lower()}{words[1:]}", Span(source, start, start)) from None
    except ValueError:  # raised by Python for a number with thousands of digits
        start = _long_number(source.text)
        raise fail(code, "not a toml file: a number has thousands of digits", Span(source, start, start)) from None
    except RecursionError:
        raise fail(code, "tables are nested too deeply", Span(source, 0, 0)) from None


def _long_number(text: str) -> int:
    found = re.search(r"[\d_]{1000,}", text)
    return found.start() if found else 0
