"""Coroutines of a simulated program: each runs until it must wait, then the next one runs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import count
from typing import TypeVar

Result = TypeVar("Result")

Coroutine = Generator[None, None, Result]
"""A computation that runs until it must wait, each time that it is resumed."""


def completed(coroutines: Sequence[Coroutine[Result]], behind: Sequence[int] = ()) -> list[Result]:
    """The results of all coroutines, which are resumed in turn until all have ended. If `behind` is given, coroutine i
    starts after `behind[i]` rounds.
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
