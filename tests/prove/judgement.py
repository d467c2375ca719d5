"""A mutant before two judges: the prover and the independent checker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Answer, Proved, Refuted
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import RuleDecl

from .exact import NoMeaning, TooLarge, check, check_at

INSTANCES = 5
INSTANCES_OF_PROVED = 20


class Truth(StrEnum):
    """What the independent checker finds."""

    ILL_SHAPED = "ill-shaped"
    """At some sizes that meet the conditions, or at all, a side has no meaning, or there are no such sizes."""
    AGREE = "agree"
    DIFFER = "differ"


class Word(StrEnum):
    """What the prover says."""

    PROVED = "proved"
    REFUTED = "refuted"
    NOT_PROVED = "not proved"
    REFUSED = "refused"


@dataclass(frozen=True)
class Judgement:
    """One mutant. `detail` is the prover's reason, or what speaks against its answer."""

    rule: RuleDecl
    kind: str
    truth: Truth
    word: Word
    confirmed: bool
    detail: str

    @property
    def sound(self) -> bool:
        """What is proved agrees at all sizes; what is refuted differs at the sizes of the counterexample."""
        if self.word is Word.PROVED:
            return self.truth is Truth.AGREE
        return self.word is not Word.REFUTED or self.confirmed


def judge(rule: RuleDecl, kind: str, library: Library) -> Judgement:
    try:
        answer: Answer = prove_rule(rule, library)
    except InputError as error:
        return Judgement(rule, kind, _truth(rule, library, INSTANCES)[0], Word.REFUSED, False, str(error))
    if isinstance(answer, Proved):
        truth, detail = _truth(rule, library, INSTANCES_OF_PROVED)
        return Judgement(rule, kind, truth, Word.PROVED, False, detail)
    truth, _ = _truth(rule, library, INSTANCES)
    if not isinstance(answer, Refuted):
        return Judgement(rule, kind, truth, Word.NOT_PROVED, False, f"{answer.obligation}: {answer.reason}")
    detail = f"{answer.counterexample}"
    try:
        confirmed = check_at(rule, library, answer.counterexample.sizes) is not None
    except (NoMeaning, TooLarge) as reason:
        confirmed, detail = False, f"{detail}: {reason}"
    if confirmed and truth is Truth.AGREE:
        truth = Truth.DIFFER
    return Judgement(rule, kind, truth, Word.REFUTED, confirmed, detail)


def _truth(rule: RuleDecl, library: Library, instances: int) -> tuple[Truth, str]:
    checked = check(rule, library, instances)
    if checked.meaningless is not None:
        return Truth.ILL_SHAPED, checked.meaningless
    if checked.found is not None:
        return Truth.DIFFER, str(checked.found)
    return (Truth.AGREE, "") if checked.agreed else (Truth.ILL_SHAPED, "no instance has values")


# ---------------------------------------------------------------------------------------------- counts

Counts = Mapping[str, Mapping[str, int]]
COLUMNS = ("total", "well-formed", *Truth, *Word, "differ and refuted")


def counts(judgements: Iterable[Judgement]) -> Counts:
    """By kind and over all: how many of each truth and word, and how many that differ were refuted."""
    found: dict[str, Counter[str]] = {}
    for judgement in judgements:
        row = ["total", judgement.truth, judgement.word]
        if judgement.truth is not Truth.ILL_SHAPED:
            row.append("well-formed")
        if judgement.truth is Truth.DIFFER and judgement.word is Word.REFUTED:
            row.append("differ and refuted")
        for name in (judgement.kind, "all"):
            found.setdefault(name, Counter()).update(row)
    names = [*sorted(name for name in found if name != "all"), "all"]
    return {name: {column: found[name][column] for column in COLUMNS} for name in names if name in found}


def table(rows: Counts) -> Iterator[str]:
    """The counts as lines of text."""
    width = max(map(len, rows))
    yield " ".join([" " * width, *(column.rjust(max(6, len(column))) for column in COLUMNS)])
    for name, row in rows.items():
        yield " ".join([name.ljust(width), *(str(row[column]).rjust(max(6, len(column))) for column in COLUMNS)])
