"""Computations in turns: each goes on up to where it must wait, then the next does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

Result = TypeVar("Result")

Turns = Generator[None, None, Result]
"""What computes up to where it must wait, each time that it is resumed."""


def ended(turns: Sequence[Turns[Result]]) -> list[Result]:
    """What each of them returns, resumed one after the other until all have ended."""
    found: dict[int, Result] = {}
    while len(found) < len(turns):
        for place, turn in enumerate(turns):
            if place not in found:
                try:
                    next(turn)
                except StopIteration as end:
                    found[place] = end.value
    return [found[place] for place in range(len(turns))]
