"""Signature tables: the operators, with ranks and attributes, over which substitutions are enumerated.

A table is a TOML file of themes. A signature is written in the language of rules: operands with their dimensions, and
the tensors that one operator makes from them. The operator's declaration gives its meaning and the shapes of its
results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...syntax.diagnostic import InputError, fail, suggest
from ...syntax.read import read_source
from ...syntax.span import Source, Span
from ...syntax.toml_text import toml_entries

DEFAULT_OPERATORS = 3
_KEYS = ("about", "operators", "numbers", "signatures", "special")


@dataclass(frozen=True)
class Theme:
    """Operators whose graphs are compared with each other, with up to `operators` operators per side.

    `numbers` are the values tried for an attribute that may be any real number. `special` are signatures at particular
    types, such as a concatenation of equal parts: operands of their types are tried as well.
    """

    name: str
    operators: int
    signatures: tuple[str, ...]
    special: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ("c", "d")
    about: str = ""


@dataclass(frozen=True)
class SignatureTable:
    """Themes in the order of the file, which gives the place of every signature."""

    themes: tuple[Theme, ...]
    source: Source

    def place(self, text: str) -> Span:
        """The place of a text in the file; the start of the file if the text does not occur."""
        start = self.source.text.find(text)
        return Span(self.source, max(start, 0), max(start, 0) + (len(text) if start >= 0 else 0))


def load_table(path: Path) -> SignatureTable:
    """The table of a file. Raises E0xx if the file cannot be read, E509 if it is not a table."""
    return read_table(read_source(path))


def read_table(source: Source) -> SignatureTable:
    """The table that a toml text describes. Raises E509 with the place of the fault."""
    entries = toml_entries(source, "E509")
    if not entries:
        raise fail("E509", "no theme", Span(source, 0, 0), help="a theme is a table: `[matrices]`")
    return SignatureTable(tuple(_theme(source, name, entry) for name, entry in entries.items()), source)


def _theme(source: Source, name: str, entry: Any) -> Theme:
    if not isinstance(entry, dict):
        raise _fault(source, name, f"`{name}` stands outside of a theme", help=f"begin a theme: `[{name}]`")
    for key in entry:
        if key not in _KEYS:
            help = suggest(key, _KEYS) or f"a theme has {', '.join(f'`{known}`' for known in _KEYS)}"
            raise _fault(source, key, f"unknown key `{key}` of `{name}`", help=help)
    operators = entry.get("operators", DEFAULT_OPERATORS)
    if not isinstance(operators, int) or isinstance(operators, bool) or not 1 <= operators <= 4:
        raise _fault(source, "operators", f"`operators` of `{name}` is a whole number from 1 to 4")
    signatures = _texts(source, name, entry, "signatures")
    if not signatures:
        raise _fault(source, name, f"`{name}` has no signatures", help='signatures = ["(x: [m, n]) relu(x)"]')
    about = entry.get("about", "")
    if not isinstance(about, str):
        raise _fault(source, "about", f"`about` of `{name}` is a text")
    numbers = _texts(source, name, entry, "numbers") or ("c", "d")
    return Theme(name, operators, signatures, _texts(source, name, entry, "special"), numbers, about)


def _texts(source: Source, name: str, entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts. Raises E509 if it is something else or contains a text twice."""
    found = entry.get(key, [])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise _fault(source, key, f"`{key}` of `{name}` is a list of texts")
    twice = _repeated(found)
    if twice is not None:
        raise _fault(source, twice, f"`{twice}` stands twice in `{name}`")
    return tuple(found)


def _repeated(texts: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            return text
        seen.add(text)
    return None


def _fault(source: Source, text: str, message: str, help: str = "") -> InputError:
    start = max(source.text.find(text), 0)
    return fail("E509", message, Span(source, start, start + len(text)), help=help)
