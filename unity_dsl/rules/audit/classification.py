"""Classifies the rules of a file under a reading: proved, proved under a condition, refuted, or undecided with a
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum

from ...index.library import Library
from ...prove.answer import Proved, Refuted
from ...prove.conditions.condition_evidence import Undefined
from ...prove.conditions.condition_search import Found
from ...prove.normal_form.step_limit import OutOfSteps
from ...prove.refutation.counterexample import counterexample_table
from ...prove.refutation.numeric_run import Difference
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import RuleDecl, parse_rules
from ...syntax.span import Source
from ..process_map import process_map
from ..rulebook import Verdict, answers, difference_text, reason_text
from ..wellformed import check_rule
from .file_rules import FileRule, RuleFile
from .reading import Reading
from .rule_translation import Translated, translate
from .size_equations import Contradiction
from .typed_terms import NoReading


class Status(StrEnum):
    """The result for a rule."""

    PROVED = "proved"
    PROVED_WITH_CONDITIONS = "proved_with_conditions"
    REFUTED = "refuted"
    UNBOUND = "unbound"
    NOT_PROVED = "not_proved"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True)
class Finding:
    """A rule's status. It is proved if all of `conditions` hold; `reason` says why it is not always true.

    `text` is the rule in our language, without the conditions that were found. `counterexample` has inputs at which its
    sides differ, one per line.
    """

    name: str
    status: Status
    conditions: tuple[str, ...] = ()
    reason: str | None = None
    text: str = ""
    counterexample: str = ""

    def summary(self) -> dict[str, object]:
        """The finding as plain data, without its texts."""
        return {
            "name": self.name,
            "status": str(self.status),
            "conditions": list(self.conditions),
            "reason": self.reason,
        }


def classify(rule: FileRule, reading: Reading, library: Library) -> Finding:
    """The finding for one rule."""
    prepared = _prepared(rule, reading, library)
    if isinstance(prepared, Finding):
        return prepared
    return _named(_judged(prepared, library), rule, prepared)


def _prepared(rule: FileRule, reading: Reading, library: Library) -> Finding | Translated:
    """The rule in our language, or the finding if it has no meaning there."""
    if rule.unbound:
        read = ", ".join(f"`x{-number}`" for number in rule.unbound)
        return Finding(rule.name, Status.UNBOUND, (), f"the target reads {read}, which the source does not bind")
    try:
        translated = translate(rule, reading)
        return replace(translated, rule=check_rule(translated.rule, library))
    except NoReading as reason:
        return Finding(rule.name, Status.UNSUPPORTED, (), str(reason))
    except OutOfSteps as reason:
        return Finding(rule.name, Status.UNSUPPORTED, (), f"its sizes are not solved: given up after {reason}")
    except Contradiction as reason:
        return Finding(rule.name, Status.REFUTED, (), f"at no sizes do both sides have shapes: {reason}")
    except InputError as error:
        return Finding(rule.name, Status.UNSUPPORTED, (), error.diagnostic.message)


def _judged(translated: Translated, library: Library) -> Finding:
    (verdict,) = answers((translated.rule,), library, conditions=True)
    found = _finding(verdict, library)
    if translated.conditions and found.status is Status.PROVED:
        return _outside(translated, library)
    return found


def _named(found: Finding, rule: FileRule, translated: Translated) -> Finding:
    return replace(found, name=rule.name, text=translated.text)


def _finding(verdict: Verdict, library: Library) -> Finding:
    answer, found = verdict.answer, verdict.found
    if isinstance(answer, Proved):
        return Finding(verdict.rule.name, Status.PROVED)
    if found is not None:
        return _under_conditions(verdict.rule, found, library)
    status = Status.REFUTED if isinstance(answer, Refuted) else Status.NOT_PROVED
    return Finding(verdict.rule.name, status, (), reason_text(answer), "", _table(answer, verdict.rule, library))


def _under_conditions(rule: RuleDecl, found: Found, library: Library) -> Finding:
    """The finding for a rule that is proved under conditions. Alternative conditions are joined by `or`."""
    every = (found.conditions, *found.others)
    conditions = every[0] if len(every) == 1 else (" or ".join(" and ".join(one) for one in every),)
    outside, table = found.outside, ""
    if isinstance(outside, Undefined):
        reason = f"at {', '.join(f'{name} = {size}' for name, size in outside.sizes.items())}: {outside.reason}"
    else:
        reason, table = difference_text(outside), counterexample_table(outside, rule, library)
    return Finding(rule.name, Status.PROVED_WITH_CONDITIONS, conditions, reason, "", table)


def _outside(translated: Translated, library: Library) -> Finding:
    """The finding for a rule that is proved if its replaced results have equal sizes; the reason says what happens at
    other sizes.
    """
    kept = translated.rule.conditions[: len(translated.rule.conditions) - len(translated.conditions)]
    rule = replace(translated.rule, conditions=kept)
    (verdict,) = answers((rule,), library)
    table = _table(verdict.answer, rule, library)
    reason = None if isinstance(verdict.answer, Proved) else reason_text(verdict.answer)
    return Finding(rule.name, Status.PROVED_WITH_CONDITIONS, translated.conditions, reason, "", table)


def _table(answer: object, rule: RuleDecl, library: Library) -> str:
    """The table of a counterexample, which is evaluated again; empty if there is none."""
    found: Difference | None = answer.counterexample if isinstance(answer, Refuted) else None
    return "" if found is None else counterexample_table(found, rule, library)


def true_rules(found: Iterable[Finding]) -> Iterator[RuleDecl]:
    """The rules that are proved, with the conditions that they need; one rule for each alternative of a condition."""
    for finding in found:
        if finding.status in (Status.PROVED, Status.PROVED_WITH_CONDITIONS):
            alternatives: tuple[tuple[str, ...], ...] = (finding.conditions,)
            if len(finding.conditions) == 1:
                alternatives = tuple(tuple(one.split(" and ")) for one in finding.conditions[0].split(" or "))
            for conditions in alternatives:
                head, _, rest = finding.text.partition("\n")
                where = f"  where {', '.join(conditions)}\n" if conditions else ""
                yield from parse_rules(Source(finding.name, f"{head}\n{where}{rest}")).rules


# ---------------------------------------------------------------------------------------------- a file


def findings(
    file: RuleFile, reading: Reading, processes: int, tell: Callable[[int], None] | None = None
) -> Iterator[Finding]:
    """The findings in the order of the file, computed by `processes` processes. `tell` is called with the number of
    rules done.

    The processes end as soon as the iterator is closed.
    """
    library = reading.library()
    prepared = [_prepared(rule, reading, library) for rule in file.rules]
    # Rules with equal texts have the same answer and are proved once.
    first: dict[str, Translated] = {}
    for one in prepared:
        if isinstance(one, Translated):
            first.setdefault(one.claim, one)
    known: dict[str, Finding] = {}
    with closing(process_map(lambda one: _judged(one, library), list(first.values()), processes)) as answered:
        for number, (rule, one) in enumerate(zip(file.rules, prepared, strict=True)):
            if tell is not None:
                tell(number)
            if isinstance(one, Finding):
                yield one
                continue
            if one.claim not in known:
                known[one.claim] = next(answered)
            yield _named(known[one.claim], rule, one)
