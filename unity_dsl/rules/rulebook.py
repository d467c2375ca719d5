"""Reads rules from `.rules` text, each with the prover's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import isnan
from time import perf_counter

from ..index.equations.term_text import condition_text
from ..index.library import Library
from ..prove.answer import Answer, NotProved, Proved, Refuted
from ..prove.conditions.condition_search import Found, find_condition
from ..prove.refutation.numeric_run import Difference
from ..prove.rule_proof import prove_rule
from ..syntax.diagnostic import InputError, fail
from ..syntax.parse_rules import RuleDecl
from ..syntax.span import Source
from .accepted_rule import AcceptedRule
from .certificate import Certificate, certified
from .process_map import process_map
from .wellformed import load_rules

MAX_TEXT = 200
"""Limit of characters shown of an exception's message."""

Progress = Callable[[int, int, RuleDecl, bool], None]
"""Called before each proof with the number of finished rules, the number of all rules, the next rule, and False. Called
again with True before the search for a condition under which the rule holds.
"""


@dataclass(frozen=True)
class Verdict:
    """A rule, the prover's answer, and the rule's conditions on sizes.

    For a rule that is not proved, `found` is a further condition that makes it provable, if one was searched for and
    found.
    """

    rule: RuleDecl
    answer: Answer
    conditions: tuple[str, ...]
    found: Found | None = None


def prove_rules(
    source: Source, library: Library, progress: Progress | None = None, *, conditions: bool = False
) -> tuple[Verdict, ...]:
    """Every rule of a text with the prover's answer. With `conditions`, a condition is searched for each rule that is
    not proved.

    Raises InputError, as `load_rules` does, if the text cannot be read or a rule has no meaning.
    """
    return tuple(answers(load_rules(source, library), library, progress, conditions=conditions))


def answers(
    rules: Sequence[RuleDecl], library: Library, progress: Progress | None = None, *, conditions: bool = False
) -> Iterator[Verdict]:
    """Like `prove_rules`, for well-formed rules, yielded one after the other."""
    for done, rule in enumerate(rules):
        if progress is not None:
            progress(done, len(rules), rule, False)
        verdict = prove_one(rule, library)
        if conditions and not isinstance(verdict.answer, Proved):
            if progress is not None:
                progress(done, len(rules), rule, True)
            verdict = replace(verdict, found=_condition(rule, library, verdict.answer))
        yield verdict


def answers_by(
    processes: int, rules: Sequence[RuleDecl], library: Library, progress: Progress | None = None
) -> Iterator[Verdict]:
    """Like `answers`, but several processes prove rules at the same time. The order is the same, and no conditions are
    searched.
    """
    if processes < 2 or len(rules) < 2:
        yield from answers(rules, library, progress)
        return
    with closing(process_map(lambda rule: prove_one(rule, library).answer, rules, processes)) as found:
        for done, (rule, answer) in enumerate(zip(rules, found, strict=True)):
            if progress is not None:
                progress(done, len(rules), rule, False)
            yield Verdict(rule, answer, tuple(map(condition_text, rule.conditions)))


def prove_one(rule: RuleDecl, library: Library) -> Verdict:
    """One rule with the prover's answer; an internal error of the prover becomes `NotProved`. Raises InputError."""
    begun = perf_counter()
    try:
        answer: Answer = prove_rule(rule, library)
    except InputError:
        raise
    except Exception as error:  # any exception, so that the other rules of a file are still proved
        text = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_TEXT]
        answer = NotProved(
            "same_value", f"the prover failed, which is a fault of unityc: {text}", perf_counter() - begun
        )
    return Verdict(rule, answer, tuple(map(condition_text, rule.conditions)))


def _condition(rule: RuleDecl, library: Library, answer: Answer) -> Found | None:
    """A condition that makes an unproved rule provable; None if the search fails."""
    try:
        return find_condition(rule, library, answer)
    except Exception:
        return None


def accept_rules(
    source: Source, library: Library, certificates: Mapping[str, Certificate] | None = None
) -> tuple[AcceptedRule, ...]:
    """The rules of a text, all of them proved. Rules without a valid certificate are proved now.

    Raises E542 for a rule that is not proved, and InputError as `prove_rules` does.
    """
    known = certificates or {}
    return tuple(accept(rule, source, library, known) for rule in load_rules(source, library, known))


def accept(rule: RuleDecl, source: Source, library: Library, certificates: Mapping[str, Certificate]) -> AcceptedRule:
    """A well-formed rule, proved now unless it has a valid certificate. Raises E542."""
    if certified(rule, library, certificates):
        return AcceptedRule(rule, certificates[rule.name].assumed)
    answer = prove_one(rule, library).answer
    if isinstance(answer, Proved):
        return AcceptedRule(rule, answer.assumed)
    what = "is false" if isinstance(answer, Refuted) else "is not proved"
    message = f"the rule `{rule.name}` {what}: {reason_text(answer)}"
    help = f"`unityc rules show {rule.name} --rules {source.name}` shows how far the proof goes"
    raise fail("E542", message, rule.span, help=help)


def condition_texts(found: Found) -> tuple[str, ...]:
    """Every condition that was found; conjunctions are written with `and`."""
    return tuple(" and ".join(condition) for condition in (found.conditions, *found.others))


def reason_text(answer: Refuted | NotProved) -> str:
    """Why a rule is not proved: the point at which its sides differ, or the obligation that could not be shown."""
    if isinstance(answer, Refuted):
        return difference_text(answer.counterexample)
    return f"{answer.obligation}: {answer.reason}"


def difference_text(found: Difference) -> str:
    """`at m = 2, k = 3: output 0[0, 1] is 1.5 on the left, 2 on the right`."""
    sizes = ", ".join(f"{name} = {size}" for name, size in {**found.written, **found.reals}.items())
    where = ", ".join(filter(None, ("outside training" if found.evaluation else "", f"at {sizes}" if sizes else "")))
    output = f"{where}: output {found.output}" if where else f"output {found.output}"
    if found.shapes is not None:
        left, right = map(list, found.shapes)
        return f"{output} has the shape {left} on the left, {right} on the right"
    place = f"[{', '.join(map(str, found.position))}]" if found.position else ""
    return f"{output}{place} is {_value(found.left)} on the left, {_value(found.right)} on the right"


def _value(value: float) -> str:
    return "no value" if isnan(value) else f"{value:.6g}"
