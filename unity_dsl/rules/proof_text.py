"""Lays out a rule's proof for `unityc rules show NAME`; formulas are printed by prove/translation/form_text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..index.equations.term_text import condition_text
from ..index.library import Library
from ..prove.answer import Answer, Proved, Refuted
from ..prove.decision.integer_arithmetic import Question
from ..prove.rule_proof import Derivation, follow_rule
from ..prove.smtlib import UNSAT, rests_on, smt_files
from ..prove.translation.form_text import Notation, notation_of, question_text, tensor_lines
from ..prove.translation.real_attributes import real_names
from ..syntax.parse_rules import RuleDecl
from .rulebook import reason_text

_MARGIN = 11


def describe_rule(rule: RuleDecl, library: Library, *, smt: bool = False) -> str:
    """The text of a rule, its sizes, both sides in normal form, the proved obligations, and the questions put to z3.

    With `smt`, all questions are written in full. Raises InputError as `prove_rule` does.
    """
    answer, derivations = follow_rule(rule, library)
    lines = list(_declaration(rule))
    if derivations:
        lines += _titled("sizes", _sizes(rule, derivations, real_names(rule, library)))
        # Among several choices of ranks, rank 1 shows the structure of the proof.
        derivation = next((one for one in derivations if set(one.ranks.values()) == {1}), derivations[0])
        notation = notation_of(derivation.inputs, derivation.witness)
        lines += _titled("ranks", _ranks(derivations, derivation))
        for number, sides in enumerate(derivation.outputs):
            for name, tensor in zip(("left", "right"), sides, strict=True):
                lines += _titled(name, tensor_lines(tensor, notation, f"output {number}"))
        lines += _titled("shown", _obligations(derivation, answer))
        lines += _titled("z3", _questions(derivations, derivation, notation))
    lines += _titled("assumed", answer.assumed if isinstance(answer, Proved) else ())
    lines += _titled("answer", [_answer(answer)])
    if smt:
        for name, text in smt_files(rule.name, derivations).items():
            lines += ["", f"; {name}", *text.rstrip("\n").splitlines()]
    return "\n".join(lines)


def _declaration(rule: RuleDecl) -> Iterator[str]:
    if rule.doc:
        yield from rule.doc.splitlines()
        yield ""
    if rule.span is not None:
        yield from rule.span.text.rstrip().splitlines()
        yield ""


def _titled(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines in a column, the first with a title in the margin."""
    for number, line in enumerate(lines):
        yield f"{'' if number else title:<{_MARGIN}}{line}".rstrip()


def _sizes(rule: RuleDecl, derivations: Sequence[Derivation], reals: Sequence[str]) -> Iterator[str]:
    names = ", ".join(dict.fromkeys(name for derivation in derivations for name in derivation.witness))
    yield f"{names}: any whole numbers from 1" if names else "none"
    if reals:
        yield f"{', '.join(reals)}: any real number{'s' * (len(reals) > 1)}"
    for condition in rule.conditions:
        yield f"where {condition_text(condition)}"


def _ranks(derivations: Sequence[Derivation], chosen: Derivation) -> Iterator[str]:
    if chosen.ranks:
        others = len({tuple(one.ranks.values()) for one in derivations}) - 1
        shown = ", ".join(f"{group}.. of rank {rank}" for group, rank in chosen.ranks.items())
        yield f"{shown}; so, too, for {others} other choices of ranks" if others else shown


def _obligations(derivation: Derivation, answer: Answer) -> Iterator[str]:
    for obligation in derivation.obligations:
        asked = sum(question.answer == UNSAT for question in obligation.questions)
        with_z3 = f" (z3: {_times(asked, 'question')})" if asked else ""
        yield f"{obligation.name:<13}{obligation.statement}{with_z3}"
    if not isinstance(answer, Proved | Refuted):
        yield f"{answer.obligation:<13}NOT: {answer.reason}"


def _questions(derivations: Sequence[Derivation], chosen: Derivation, notation: Notation) -> Iterator[str]:
    used = sum(len(rests_on(derivation)) for derivation in derivations)
    every = sum(len(derivation.questions) for derivation in derivations)
    yield f"{_times(every, 'question')}, {used} of them answered `unsat`: the claim holds" if every else "not asked"
    for question in chosen.questions:
        yield f"{_verdict(question)} {question_text(question, notation)}"


def _verdict(question: Question) -> str:
    return {UNSAT: "yes  ", "sat": "no   "}.get(question.answer, "open ")


def _answer(answer: Answer) -> str:
    if isinstance(answer, Proved):
        return "proved"
    return f"{'false' if isinstance(answer, Refuted) else 'not proved'}: {reason_text(answer)}"


def _times(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
