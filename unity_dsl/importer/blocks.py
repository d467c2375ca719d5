"""Blocks of an imported model: what several statements do that no operator does, as text with the numbers of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, init=False)
class Block:
    """A block of the .udl language with the values of its parameters in a call.

    `bounds` are the numbers of values that integer operands have, by name: the rows of a table that one indexes. One
    that is not there has as many as the example needs.
    """

    text: str
    bounds: Mapping[str, int]
    settings: Mapping[str, int | float]

    def __init__(self, text: str, *, bounds: Mapping[str, int] = MappingProxyType({}), **settings: int | float) -> None:
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "settings", settings)

    @property
    def name(self) -> str:
        found = _HEAD.search(self.text)
        return found[1] if found else ""

    def renamed(self, name: str) -> Block:
        """The same under another name."""
        text = _HEAD.sub(f"block {name}", self.text, count=1)
        return Block(text, bounds=self.bounds, **self.settings)


_HEAD = re.compile(r"^block +(\w+)", re.MULTILINE)
