"""Coroutines of a simulated program: each goes on up to where it must wait, then the next does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

Result = TypeVar("Result")

Coroutine = Generator[None, None, Result]
"""What computes up to where it must wait, each time that it is resumed."""


def completed(coroutines: Sequence[Coroutine[Result]]) -> list[Result]:
    """What each of them returns, resumed one after the other until all have ended."""
    found: dict[int, Result] = {}
    while len(found) < len(coroutines):
        for place, coroutine in enumerate(coroutines):
            if place not in found:
                try:
                    next(coroutine)
                except StopIteration as end:
                    found[place] = end.value
    return [found[place] for place in range(len(coroutines))]
