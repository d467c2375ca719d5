"""Answers of the prover: proved, refuted or not proved, and what each rests on."""

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
    """Something that was shown: same_shape, in_bounds, divides, same_layout, same_value, defined or inhabited.

    One named `assumed` was not shown: a fact that the proof rests on.

    `questions` are those that z3 was asked on the way, where a proof is followed.
    """

    name: str
    statement: str
    questions: tuple[Question, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Proved:
    """For all sizes that meet the conditions. `questions` is how often z3 was asked, `facts` what it rests on.

    Those of element functions, of which some are assumed.
    """

    obligations: tuple[Obligation, ...]
    questions: int
    seconds: float
    facts: tuple[FactDecl, ...] = ()

    @property
    def assumed(self) -> tuple[str, ...]:
        """The facts that the proof rests on and that are not proved themselves."""
        return tuple(obligation.statement for obligation in self.obligations if obligation.name == ASSUMED)


@dataclass(frozen=True)
class Refuted:
    """Both sides were run in NumPy at these sizes, and differ there."""

    counterexample: Difference
    seconds: float


@dataclass(frozen=True)
class NotProved:
    """Neither: the obligation that was not met, and why."""

    obligation: str
    reason: str
    seconds: float


Answer = Proved | Refuted | NotProved
