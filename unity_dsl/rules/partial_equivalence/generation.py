"""Partially equal forms from candidates: each with its boxes, its correction and the prover's answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...index.library import Library
from ...prove.answer import Answer, Proved
from ...prove.normal_form.form import Unsupported
from ...prove.rule_proof import prove_rule
from ...prove.translation.symbolic_sizes import Failed
from .candidate import Candidate
from .correction import Corrected, corrected


@dataclass(frozen=True)
class Outcome:
    """The outcome for a candidate. `corrected` is None if it agrees nowhere or cannot be written; otherwise `answer` is
    the prover's answer.
    """

    candidate: Candidate
    corrected: Corrected | None
    answer: Answer | None
    reason: str = ""

    @property
    def proved(self) -> bool:
        return isinstance(self.answer, Proved)

    @property
    def boxes(self) -> tuple[str, ...]:
        """The boxes as text, one for each output."""
        return () if self.corrected is None else tuple(map(str, self.corrected.boxes))


def outcomes(candidates: Iterable[Candidate], library: Library) -> Iterator[Outcome]:
    """The outcome of each candidate, in their order."""
    for candidate in candidates:
        try:
            found = corrected(candidate, library)
        except (Failed, Unsupported) as reason:
            yield Outcome(candidate, None, None, str(reason))
            continue
        if found is None:
            yield Outcome(candidate, None, None, "the sides agree in no box")
            continue
        yield Outcome(candidate, found, prove_rule(found.rule.rule(library), library))


def distinct(found: Iterable[Outcome]) -> Iterator[Outcome]:
    """The proved outcomes, except those with the same boxes as an earlier form that moves the same factors to the same
    dimensions.
    """
    known = set()
    for outcome in found:
        key = outcome.candidate.name.replace("_interleaved", ""), outcome.boxes
        if outcome.proved and key not in known:
            known.add(key)
            yield outcome
