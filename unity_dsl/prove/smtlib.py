"""Writes the questions that a proof asked of z3 as SMT-LIB 2 files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .decision.integer_arithmetic import Question
from .rule_proof import Derivation
from .translation.form_text import Notation, notation_of, question_text

UNSAT = "unsat"


def rests_on(derivation: Derivation) -> tuple[Question, ...]:
    """The queries answered `unsat`, which the proof uses. The others only decided between methods."""
    return tuple(question for question in derivation.questions if question.answer == UNSAT)


def smt_files(rule: str, derivations: Sequence[Derivation]) -> dict[str, str]:
    """The queries that the proof of a rule uses as SMT-LIB 2 texts, by file name."""
    texts = _smt_texts(rule, derivations)
    return {f"{rule}.{number:03}.{name}.smt2": text for number, (name, text) in enumerate(texts, 1)}


def _smt_texts(rule: str, derivations: Sequence[Derivation]) -> Iterator[tuple[str, str]]:
    for derivation in derivations:
        notation = notation_of(derivation.inputs, derivation.witness)
        ranks = ", ".join(f"{group}.. of rank {rank}" for group, rank in derivation.ranks.items())
        heading = f"rule {rule}{f', {ranks}' if ranks else ''}"
        for question in rests_on(derivation):
            yield question.obligation, smt_text(heading, question, notation)


def smt_text(heading: str, question: Question, notation: Notation) -> str:
    """A query as an SMT-LIB 2 file, with a heading and its reading in `.rules` notation as comments."""
    lines = [
        f"; {heading}",
        f"; obligation {question.obligation}: {question_text(question, notation)}",
        "; What follows states the opposite: where it cannot be met, `unsat`, the obligation is.",
        f"(set-info :status {question.answer})",
    ]
    return "\n".join(lines) + "\n" + question.text
