"""Judges a rule by the prover and by the independent evaluator, and compares the two answers."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from itertools import product
from time import process_time
from typing import Any

from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Answer, NotProved, Proved, Refuted
from unity_dsl.prove.refutation.numeric_run import Difference
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import RuleDecl

from ..evaluator.extern import calls_extern, draws_numbers
from ..evaluator.operator import Untried
from ..evaluator.shapes import NoMeaning
from ..evaluator.truth import Judged, Truth, confirms, judge

INSTANCES = 12
INSTANCES_OF_PROVED = 24
PATIENCE = 10.0
"""CPU seconds after which a proof counts as not terminating."""


class TimeUp(BaseException):
    """Raised when a time limit is reached. It is a BaseException so that `except Exception` does not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeUp after so many CPU seconds of this process. To be used in the main thread."""

    def stop(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Word(StrEnum):
    """The prover's answer."""

    PROVED = "proved"
    REFUTED = "refuted"
    NOT_PROVED = "not proved"
    REFUSED = "refused"
    CRASHED = "crashed"
    SILENT = "no answer"


class Fault(StrEnum):
    """The kind of error in an answer."""

    FALSE_PROOF = "proved and differs"
    SHAPELESS_PROOF = "proved and ill-shaped"
    FALSE_REFUTATION = "refuted and not confirmed"
    CRASH = "crash"
    HANG = "no answer in time"


@dataclass(frozen=True)
class Verdict:
    """The truth of a rule, the prover's answer, its fault if any, and the CPU seconds of prover and evaluator."""

    kind: str
    name: str
    truth: Truth
    word: Word
    fault: Fault | None
    detail: str
    seconds: tuple[float, float]
    text: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the answer has a fault other than being late."""
        return self.fault is not None and self.fault is not Fault.HANG

    def to_json(self) -> dict[str, Any]:
        """The verdict as `from_json` reads it. Without a fault, the text and detail are left out."""
        return asdict(self) | ({} if self.fault else {"detail": "", "text": ""})

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Verdict:
        fault = None if found["fault"] is None else Fault(found["fault"])
        own = {"truth": Truth(found["truth"]), "word": Word(found["word"]), "fault": fault}
        return Verdict(**{**found, **own, "seconds": tuple(found["seconds"])})


def verdict(rule: RuleDecl, kind: str, library: Library, text: str = "", *, witness: bool = True) -> Verdict:
    """Asks the prover and the evaluator about a rule.

    A proved rule is tried at more instances; a refuted rule is also evaluated at its counterexample.
    """
    begun = process_time()
    word, answer, detail = _word(rule, library, witness=witness)
    proved = process_time()
    judged = judge(rule, library, INSTANCES_OF_PROVED if word is Word.PROVED else INSTANCES)
    truth, fault = judged.truth, _fault(word, judged)
    if isinstance(answer, Refuted) and truth is not Truth.ILL_SHAPED:
        shown = confirmed(rule, library, answer.counterexample)
        if shown is False:
            fault, detail = Fault.FALSE_REFUTATION, f"{detail}; evaluator: {judged.detail or judged.truth}"
        elif shown:
            truth = Truth.DIFFERS
    if fault in (Fault.FALSE_PROOF, Fault.SHAPELESS_PROOF):
        detail = judged.detail
    seconds = round(proved - begun, 4), round(process_time() - proved, 4)
    return Verdict(kind, rule.name, truth, word, fault, detail, seconds, text)


def _word(rule: RuleDecl, library: Library, *, witness: bool) -> tuple[Word, Answer | None, str]:
    prove = prove_rule if witness else partial(prove_rule, numbers=False)
    try:
        with time_limit(PATIENCE):
            answer = prove(rule, library, shrink=False)
    except TimeUp:
        return Word.SILENT, None, f"no answer in {PATIENCE:g} CPU seconds"
    except InputError as error:
        return Word.REFUSED, None, str(error)
    except Exception as error:
        return Word.CRASHED, None, f"{type(error).__name__}: {error}"
    if isinstance(answer, Proved):
        return Word.PROVED, answer, ""
    if isinstance(answer, NotProved):
        return Word.NOT_PROVED, answer, f"{answer.obligation}: {answer.reason}"
    found = answer.counterexample
    values = f"output {found.output}{list(found.position)}: {found.left} and {found.right}"
    inputs = ", ".join(f"{given.name} = {list(given.values)[:8]}" for given in found.inputs)
    return Word.REFUTED, answer, f"{values} at {dict(found.written)}, {inputs}"


def _fault(word: Word, judged: Judged) -> Fault | None:
    if word is Word.CRASHED:
        return Fault.CRASH
    if word is Word.SILENT:
        return Fault.HANG
    if word is not Word.PROVED or judged.truth not in (Truth.DIFFERS, Truth.ILL_SHAPED):
        return None
    return Fault.FALSE_PROOF if judged.truth is Truth.DIFFERS else Fault.SHAPELESS_PROOF


def confirmed(rule: RuleDecl, library: Library, found: Difference) -> bool | None:
    """Whether exact arithmetic confirms a counterexample; None if the evaluator cannot evaluate it.

    Rules with extern or random operators give None. A counterexample runs the real extern operator, while the evaluator
    replaces it by an arbitrary function and draws other random numbers. Only the evaluator's own trials can show that
    such a rule differs.
    """
    if calls_extern(rule, library) or draws_numbers(rule, library):
        return None
    inputs = {
        given.name: dict(zip(product(*map(range, given.shape)), given.values, strict=True)) for given in found.inputs
    }
    try:
        return confirms(
            rule,
            library,
            {**found.written, **found.reals},
            inputs,
            evaluation=found.evaluation,
            output=found.output,
            position=found.position,
            shapes=found.shapes is not None,
        )
    except Untried:
        return None
    except NoMeaning:
        return False


# ---------------------------------------------------------------------------------------------- counts

Counts = Mapping[str, Mapping[str, int]]
COLUMNS = ("total", *Truth, *Word, "equal and proved", "differs and refuted", *Fault)


def counts(verdicts: Iterable[Verdict]) -> Counts:
    """The number of verdicts of each truth, answer and fault, for every kind and for all kinds together."""
    found: dict[str, Counter[str]] = {}
    for one in verdicts:
        row = ["total", one.truth, one.word, *([one.fault] if one.fault else [])]
        if one.truth is Truth.EQUAL and one.word is Word.PROVED:
            row.append("equal and proved")
        if one.truth is Truth.DIFFERS and one.word is Word.REFUTED:
            row.append("differs and refuted")
        for name in (one.kind, "all"):
            found.setdefault(name, Counter()).update(row)
    names = [*sorted(name for name in found if name != "all"), "all"]
    return {name: {column: found[name][column] for column in COLUMNS} for name in names if name in found}


def table(rows: Counts) -> Iterator[str]:
    """The counts as lines of text."""
    width = max(map(len, rows))
    yield " ".join([" " * width, *(column.rjust(max(6, len(column))) for column in COLUMNS)])
    for name, row in rows.items():
        yield " ".join([name.ljust(width), *(str(row[column]).rjust(max(6, len(column))) for column in COLUMNS)])
