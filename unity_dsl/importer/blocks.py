"""Blocks that the text of an imported model begins with: what several statements do that no operator does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A block of the language by name, with its text."""

    name: str
    text: str
