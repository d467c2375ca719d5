"""Ranks of external tensors, derived from the operators that read them."""

from __future__ import annotations

from collections.abc import Iterator

from .file_rules import FileOperator, FileRule, TensorRef
from .reading import Format

Place = tuple[str, int]
"""A side and the number of an operator on it; or an empty text and the negative number of an external tensor."""


def external_ranks(rule: FileRule, format: Format) -> dict[int, int]:
    """The rank of each external tensor, which an operator determines that reads it, directly or through others of equal
    rank.

    Raises NoReading if no operator determines it and the format knows no such tensor.
    """
    classes: dict[Place, Place] = {}

    def root(place: Place) -> Place:
        while place in classes:
            place = classes[place]
        return place

    known: dict[Place, int] = {}
    for one, other in _alike(rule):
        if root(one) != root(other):
            classes[root(one)] = root(other)
    for side, number, made in _operators(rule):
        if (rank := format.rank(made)) is not None:
            known.setdefault(root((side, number)), rank)
    found = {number: known.get(root(("", number))) for number in rule.externals}
    return {number: format.usual_rank(number) if rank is None else rank for number, rank in found.items()}


def _operators(rule: FileRule) -> Iterator[tuple[str, int, FileOperator]]:
    for side, operators in (("source", rule.source), ("target", rule.target)):
        for number, made in enumerate(operators):
            yield side, number, made


def _alike(rule: FileRule) -> Iterator[tuple[Place, Place]]:
    """Pairs of equal rank: an operator's operands and results, and results that replace one another."""
    for side, number, made in _operators(rule):
        yield from (((side, number), _place(side, ref)) for ref in made.inputs)
    for pair in rule.outputs:
        yield _place("source", pair.source), _place("target", pair.target)


def _place(side: str, ref: TensorRef) -> Place:
    return (side, ref.operator) if ref.operator >= 0 else ("", ref.operator)
