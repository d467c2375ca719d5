"""Searches for the weakest condition under which a rule is proved (counterexample-guided inductive synthesis).

Both sides are evaluated at many sizes; a candidate of the grammar (condition_grammar.py) is consistent while no
evaluation under it differs or is ill-shaped. The consistent candidate that covers most agreeing evaluations, the
weakest on them, is proved first; a counterexample of the prover becomes one more evaluation. A result is always proved:
evaluations only order the candidates. All steps are bounded and drawn from fixed seeds, so a rule has the same result
on every run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...index.library import Library
from ...syntax.ast import Apply, FactDecl, Name, Number
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import RuleDecl
from ..answer import Answer, Proved, Refuted
from ..decision.integer_arithmetic import Arithmetic
from ..decision.real_arithmetic import true_over_reals
from ..normal_form.form import Unsupported
from ..normal_form.guard import compare
from ..normal_form.step_limit import limited
from ..refutation.numeric_run import Difference
from ..rule_proof import prove_rule
from ..translation.rule_forms import claim_of
from ..translation.size_assumptions import Claim
from .condition_evidence import Condition, Evidence, Undefined

MOST_PROOFS = 8
"""Limit of candidates given to the prover."""
SEARCH_STEPS, EVALUATION_STEPS, EXAMPLE_STEPS = 20_000, 10_000, 10_000
"""Step limits: for all evaluations and proofs under conditions; within these, for the evaluations before the first
proof; and for shrinking the example outside the condition."""
MOST_OTHERS = 3
"""Limit of alternative conditions."""


@dataclass(frozen=True)
class Found:
    """A condition under which a rule is proved, and an example outside it.

    The rule is also proved under each of `others`, which cover sizes that no earlier condition covers: `n == 1` after
    `m == 1`. `exact`: no run outside all of them agrees, so the grammar has no weaker condition.
    """

    conditions: tuple[str, ...]
    rule: RuleDecl
    proved: Proved
    outside: Difference | Undefined
    others: tuple[tuple[str, ...], ...]
    exact: bool


def find_condition(rule: RuleDecl, library: Library, answer: Answer | None = None) -> Found | None:
    """The weakest condition of the grammar that is found and proved; `answer` is that of `prove_rule`, where known.

    A counterexample of `answer` is the example outside the condition.

    None where the rule needs none, where no evaluation agrees or none disagrees, and where no candidate is proved.
    Raises InputError for unknown names and for calls that cannot be read.
    """
    if isinstance(answer or prove_rule(rule, library, shrink=False), Proved):
        return None
    try:
        evidence = Evidence.of(rule, library)
    except Unsupported:
        return None
    if not all(setting.pool for setting in evidence.settings):
        return None  # no sizes found that satisfy the rule's own conditions
    with limited(SEARCH_STEPS):
        with limited(EVALUATION_STEPS):
            evidence.gather()
        found = _weakest(rule, library, evidence) if evidence.against else {}
    # Shrinking the example has its own limit, so that it takes no steps from the proofs.
    with limited(EXAMPLE_STEPS):
        given = answer.counterexample if isinstance(answer, Refuted) else None
        outside = given or (evidence.outside() if found else None)
    if not found or outside is None:
        return None
    every = list(found)
    condition, proved = every[0], found[every[0]]
    return Found(
        evidence.texts(condition),
        _restricted(rule, evidence, condition),
        proved,
        outside,
        tuple(map(evidence.texts, every[1:])),
        not evidence.agreeing & ~evidence.covered_by(every),
    )


def _weakest(rule: RuleDecl, library: Library, evidence: Evidence) -> dict[Condition, Proved]:
    """The weakest conditions that are proved, the first the weakest of all, each with its proof."""
    best = _first_proved(rule, library, evidence, 0)
    if best is None:
        return {}
    found = dict([_weakened(rule, library, evidence, 0, *best)])
    while len(found) <= MOST_OTHERS:
        known = evidence.covered_by(list(found)) | evidence.agree & ~evidence.agreeing
        other = _first_proved(rule, library, evidence, known)
        if other is None:
            break
        weaker, proved = _weakened(rule, library, evidence, known, *other)
        found = {one: answer for one, answer in found.items() if not _entails(rule, evidence, one, weaker)}
        found[weaker] = proved
    return found


def _restricted(rule: RuleDecl, evidence: Evidence, condition: Condition) -> RuleDecl:
    added = tuple(evidence.atoms[place].comparison for place in condition)
    return replace(rule, conditions=rule.conditions + added)


def _first_proved(rule: RuleDecl, library: Library, evidence: Evidence, known: int) -> tuple[Condition, Proved] | None:
    """The first candidate that is proved, among those that cover an evaluation outside `known`."""
    tried: set[Condition] = set()
    sharpened: set[Condition] = set()
    while len(tried) < MOST_PROOFS:
        condition = next((found for found in evidence.candidates(known) if found not in tried), None)
        if condition is None:
            return None
        if condition not in sharpened:
            sharpened.add(condition)
            if evidence.sharpen(condition):
                continue
        tried.add(condition)
        answer = _proof(_restricted(rule, evidence, condition), library)
        if isinstance(answer, Proved):
            return condition, answer
        if isinstance(answer, Refuted):
            evidence.refute(_restricted(rule, evidence, condition), answer.counterexample)
    return None


def _weakened(
    rule: RuleDecl, library: Library, evidence: Evidence, known: int, condition: Condition, proved: Proved
) -> tuple[Condition, Proved]:
    """A weaker condition with the same runs that is proved too, and its proof; else the given ones."""
    covered = evidence.covered(condition)
    same = [other for other in evidence.candidates(known) if evidence.covered(other) == covered]
    proofs = 0
    for other in dict.fromkeys((*same[:MOST_PROOFS], *evidence.replaced(condition))):
        if proofs == MOST_PROOFS or not _is_weaker(rule, evidence, other, condition):
            continue
        proofs += 1
        answer = _proof(_restricted(rule, evidence, other), library)
        if isinstance(answer, Proved):
            condition, proved = other, answer
    return condition, proved


def _proof(rule: RuleDecl, library: Library) -> Answer | None:
    """The prover's answer; None where the rule is ill-formed under its condition, for example by a division by 0."""
    try:
        return prove_rule(rule, library, shrink=False)
    except InputError:
        return None


def _is_weaker(rule: RuleDecl, evidence: Evidence, weak: Condition, strong: Condition) -> bool:
    return _entails(rule, evidence, strong, weak) and not _entails(rule, evidence, weak, strong)


def _entails(rule: RuleDecl, evidence: Evidence, given: Condition, then: Condition) -> bool:
    """Whether `given` and the rule's own conditions imply `then`, as far as arithmetic decides."""
    if evidence.claim.reals:
        least = [Apply(">=", (Name(name), Number(1))) for name in evidence.zero if name not in evidence.attributes]
        assumed = (*_restricted(rule, evidence, given).conditions, *least)
        return all(true_over_reals(FactDecl(evidence.atoms[place].comparison, assumed), {}) for place in then)
    try:
        claim = claim_of(_restricted(rule, evidence, given))
        return all(_follows(claim, evidence.atoms[place].comparison) for place in then)
    except (Unsupported, InputError):
        return False


def _follows(claim: Claim, comparison: Apply) -> bool:
    left, right = comparison.arguments
    if isinstance(left, Apply) and left.function == "%" and right == Number(0):
        rest = list(claim.factors(left.arguments[0]))
        for factor in claim.factors(left.arguments[1]):
            if factor not in rest:
                return False
            rest.remove(factor)
        return True
    return Arithmetic(claim.conditions).certain(compare(comparison.function, claim.size(left), claim.size(right)))
