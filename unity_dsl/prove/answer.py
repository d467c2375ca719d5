"""Answers of the prover: proved, refuted or not proved, with obligations and assumed facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..syntax.ast import FactDecl

if TYPE_CHECKING:
    from .decision.integer_arithmetic import Question
    from .refutation.numeric_run import Difference


ASSUMED = "assumed"


@dataclass(frozen=True)
class Obligation:
    """A discharged proof obligation: same_shape, in_bounds, divides, same_layout, same_value, defined or inhabited.

    An obligation named `assumed` was not discharged: it states a declared fact that the proof uses unproved.

    `questions` are the z3 queries made for it, recorded only if a derivation is asked for.
    """

    name: str
    statement: str
    questions: tuple[Question, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Proved:
    """Left refines to right for all sizes that meet the conditions.

    `questions` counts the queries to z3. `facts` are the facts of element functions that were used, assumed ones
    included.
    """

    obligations: tuple[Obligation, ...]
    questions: int
    seconds: float
    facts: tuple[FactDecl, ...] = ()

    @property
    def assumed(self) -> tuple[str, ...]:
        """The statements of the facts that the proof uses and that are assumed."""
        return tuple(obligation.statement for obligation in self.obligations if obligation.name == ASSUMED)


@dataclass(frozen=True)
class Refuted:
    """A counterexample: both sides were evaluated in NumPy at its sizes and inputs, and differ."""

    counterexample: Difference
    seconds: float


@dataclass(frozen=True)
class NotProved:
    """Neither proved nor refuted: the first obligation that could not be discharged, and why."""

    obligation: str
    reason: str
    seconds: float


Answer = Proved | Refuted | NotProved
