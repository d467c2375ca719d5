"""Examines one candidate: it is proved as it is or under a condition that is searched for, and lifted to any rank."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

from ...index.library import Library
from ...prove.answer import Proved, Refuted
from ...prove.conditions.condition_search import find_condition
from ...prove.rule_proof import prove_rule
from ...syntax.ast import Name
from ...syntax.parse_rules import RuleDecl
from ...syntax.rule_names import subgraphs
from ..rulebook import prove_one
from .canonical_rule import canonical_rule
from .fitting_sizes import fitting, with_free_sizes
from .lifting import lifted_forms

MOST_OPERATORS = 4
"""Limit of operators of both sides together of a candidate for which a condition is searched."""


@dataclass(frozen=True)
class Examined:
    """The outcome for a candidate. `rule` is the proved rule; None if the candidate was `refuted` or `not_proved`.

    `seconds` is processor time.
    """

    rule: RuleDecl | None
    status: str
    obligations: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


def examine(rule: RuleDecl, library: Library, *, conditions: bool = True) -> Examined:
    """Proves a candidate at sizes where its windows fit, under a condition if needed, in the most general form that is
    proved.

    The resulting rule is canonical, and its obligations are those of its own text.
    """
    begun = process_time()
    rule = canonical_rule(fitting(rule, library), library)
    answer = prove_one(rule, library).answer
    if isinstance(answer, Refuted) and conditions and operators(rule) <= MOST_OPERATORS:
        found = find_condition(rule, library)
        # A rule that is true for one number only, `where c == 1`, is useless.
        if found is not None and not found.others and all(one.function != "==" for one in found.rule.conditions):
            rule = canonical_rule(found.rule, library)
            answer = prove_one(rule, library).answer
    if not isinstance(answer, Proved):
        status = "refuted" if isinstance(answer, Refuted) else "not_proved"
        return Examined(None, status, seconds=process_time() - begun)
    rule, answer = _lifted(rule, answer, library)
    status = "proved_with_conditions" if rule.conditions else "proved"
    met = tuple((one.name, one.statement) for one in answer.obligations)
    return Examined(rule, status, met, process_time() - begun)


def operators(rule: RuleDecl) -> int:
    """The number of distinct calls and views on both sides."""
    found = {expr for side in (rule.left, rule.right) for expr in subgraphs(side) if not isinstance(expr, Name)}
    return len(found)


def _lifted(rule: RuleDecl, answer: Proved, library: Library) -> tuple[RuleDecl, Proved]:
    """The rule with free sizes and as many groups as can be proved, added one after the other, and its proof."""
    for form in (with_free_sizes(rule, library), *lifted_forms(rule, library)):
        lifted = canonical_rule(form, library)
        found = prove_one(lifted, library).answer if lifted != rule and _holds(lifted, library) else None
        if isinstance(found, Proved) and len(found.assumed) <= len(answer.assumed):
            return _lifted(lifted, found, library)
    return rule, answer


def _holds(rule: RuleDecl, library: Library) -> bool:
    """Whether a rule is proved, without a search for a counterexample. An error of the prover counts as not proved."""
    try:
        return isinstance(prove_rule(rule, library, shrink=False, numbers=False), Proved)
    except Exception:
        return False
