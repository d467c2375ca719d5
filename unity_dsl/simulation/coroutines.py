"""Coroutines of a simulated program: each goes on up to where it must wait, then the next does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import count
from typing import TypeVar

Result = TypeVar("Result")

Coroutine = Generator[None, None, Result]
"""What computes up to where it must wait, each time that it is resumed."""


def completed(coroutines: Sequence[Coroutine[Result]], behind: Sequence[int] = ()) -> list[Result]:
    """What each of them returns, resumed one after the other until all have ended; each for the first time when so many
    turns are over, if it is told how many it is `behind`.
    """
    found: dict[int, Result] = {}
    behind = behind or [0] * len(coroutines)
    for turn in count():
        if len(found) == len(coroutines):
            break
        for place, coroutine in enumerate(coroutines):
            if place not in found and turn >= behind[place]:
                try:
                    next(coroutine)
                except StopIteration as end:
                    found[place] = end.value
    return [found[place] for place in range(len(coroutines))]
