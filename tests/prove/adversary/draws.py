"""The rules that the adversary tries: random rules of every kind, and mutants of the laws of tests/cases/proved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random

from ..cases import library, rules_of
from ..mutation import Mutant, mutants
from .batch import verdicts
from .generate import KINDS, drawn_case
from .verdict import Verdict, verdict

MUTANTS = "mutants"
SHARE_OF_MUTANTS = 0.15
"""Fraction of mutants among all rules; the other kinds share the rest equally."""


def shares(total: int) -> Mapping[str, int]:
    """How many rules of each kind are tried, for a total."""
    of_mutants = round(total * SHARE_OF_MUTANTS)
    each, left = divmod(total - of_mutants, len(KINDS))
    return {MUTANTS: of_mutants} | {kind: each + (place < left) for place, kind in enumerate(KINDS)}


def judged(kind: str, numbers: Sequence[int], seed: int, *, witness: bool) -> Iterator[Verdict]:
    """The verdicts of the rules of a kind with these numbers. Rules that cannot be read are left out."""
    if kind == MUTANTS:
        for number in numbers:
            change, rule = mutant(number, seed)
            yield verdict(rule, MUTANTS, library(), f"{change} of {rule.name}: {rule}", witness=witness)
    else:
        yield from verdicts([drawn_case(kind, number, seed) for number in numbers], witness=witness)


@cache
def _mutants(seed: int) -> tuple[Mutant, ...]:
    found = [mutant for rule in rules_of("proved") for mutant in mutants(rule, library(), per_kind=8)]
    Random(seed).shuffle(found)
    return tuple(found)


def mutant(number: int, seed: int) -> Mutant:
    """The mutant of that number in an order shuffled by the seed."""
    every = _mutants(seed)
    return every[number % len(every)]
