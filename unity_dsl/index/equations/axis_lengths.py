"""Caches derivations by the answers to their queries about axis lengths: memoisation with a decision tree.

A derivation that depends on lengths only through queries has the same result for all lengths with the same answers.
Operators that differ only in sizes are therefore differentiated once, unless an answer differs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Generic, TypeVar

Found = TypeVar("Found")
Answer = TypeVar("Answer", bound=Hashable)

Sizes = Mapping[str, int]
Question = Callable[[dict[str, int]], Hashable]
"""A query: a function of lengths and of earlier answers alone, which may add the length of a new axis."""


class Lengths:
    """Axis lengths, with a record of the queries made and their answers."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = dict(sizes)
        self.asked: list[tuple[Question, Hashable]] = []
        self._like: dict[str, str] = {}

    def ask(self, question: Callable[..., Answer], *arguments: object) -> Answer:
        """The answer of `question(sizes, *arguments)`."""
        asked = partial(_answer, question, arguments)
        answer = asked(self.sizes)
        self.asked.append((asked, answer))
        return answer

    def add(self, axis: str, like: str) -> None:
        """Adds an axis that is as long as another."""
        self.ask(_extend, axis, like)
        self._like[axis] = self._like.get(like, like)

    def same(self, axis: str, other: str) -> bool:
        """Whether two axes have equal lengths."""
        alike = self._like.get(axis, axis) == self._like.get(other, other)
        return alike or self.ask(_same, axis, other)

    def number(self, axes: tuple[str, ...]) -> int:
        """The length of a dimension. The result then depends on this number."""
        return self.ask(dim_size, axes)


def dim_size(sizes: Sizes, dim: tuple[str, ...]) -> int:
    """The length of a dimension, the product over its axes."""
    return prod(sizes[axis] for axis in dim)


def _answer(question: Callable[..., Answer], arguments: tuple[object, ...], sizes: dict[str, int]) -> Answer:
    return question(sizes, *arguments)


def _extend(sizes: dict[str, int], axis: str, like: str) -> None:
    sizes[axis] = sizes[like]


def _same(sizes: Sizes, axis: str, other: str) -> bool:
    return sizes[axis] == sizes[other]


@dataclass
class _Step(Generic[Found]):
    """A node of the decision tree: the next query with a child per answer, or the result."""

    question: Question | None = None
    following: dict[Hashable, _Step[Found]] = field(default_factory=dict)
    found: Found | None = None


class Findings(Generic[Found]):
    """The results of a derivation so far, by the answers to its queries."""

    def __init__(self) -> None:
        self._first: _Step[Found] = _Step()

    def find(self, sizes: Sizes) -> tuple[Found, Sizes] | None:
        """The result for these lengths, and the lengths including those of new axes; None if not derived yet."""
        known, step = dict(sizes), self._first
        while step.question is not None:
            following = step.following.get(step.question(known))
            if following is None:
                return None
            step = following
        return None if step.found is None else (step.found, known)

    def keep(self, lengths: Lengths, found: Found) -> None:
        step = self._first
        for question, answer in lengths.asked:
            step.question = step.question or question
            step = step.following.setdefault(answer, _Step())
        step.found = found
