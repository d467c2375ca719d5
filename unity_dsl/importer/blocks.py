"""Blocks of an imported model: computations of several statements as text, with the parameter values of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, init=False)
class Block:
    """A block of the .udl language with the values of its parameters in a call.

    `bounds` gives, by operand name, how many values an integer operand may have, such as the rows of the table that it
    indexes. An operand without an entry has as many values as the example needs.
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
        """This block under another name."""
        text = _HEAD.sub(f"block {name}", self.text, count=1)
        return Block(text, bounds=self.bounds, **self.settings)


_HEAD = re.compile(r"^block +(\w+)", re.MULTILINE)
