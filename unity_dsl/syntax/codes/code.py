"""What a diagnostic's code stands for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """A fault's title, and a paragraph on why it is a fault and what to do."""

    title: str
    text: str
