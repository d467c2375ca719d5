"""Folders are expectations: rules in proved/ are proved, rules in refuted/ and false/ are not."""

from __future__ import annotations

import re

import pytest

from unity_dsl.prove.answer import Answer, NotProved, Proved, Refuted
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.syntax.parse_rules import RuleDecl

from .cases import answer_to, library, rules_of

PROVED = rules_of("proved")
REFUTED = rules_of("refuted")
FALSE = rules_of("false")
UNSHOWN = {
    "device_axes_exchanged": "same_layout",
    "contradictory_conditions": "inhabited",
    "numbers_that_cannot_be": "inhabited",
    "slice_from_half_a_position": "same_shape",
    "operand_aligned_at_the_back": "same_shape",
    "kernels_longer_than_rows": "same_shape",
    "degree_of_another_operand": "same_layout",
    "groups_of_unequal_outputs": "divides",
}
"""Wrong rules without a counterexample, and the obligation that fails. Numbers cannot distinguish their sides, or the
sides have no meaning at some sizes.
"""


def test_both_folders_hold_rules() -> None:
    assert len(PROVED) > 60 and len(REFUTED) > 20
    names = [rule.name for rule in (*PROVED, *REFUTED, *FALSE)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("rule", PROVED, ids=lambda rule: rule.name)
def test_a_law_is_proved(rule: RuleDecl) -> None:
    answer = answer_to(rule)
    assert isinstance(answer, Proved), answer
    names = [obligation.name for obligation in answer.obligations]
    assert {"in_bounds", "same_layout", "same_shape", "same_value", "defined", "inhabited"} <= set(names)
    assert names.index("in_bounds") < names.index("same_shape") < names.index("same_value") < names.index("defined")


@pytest.mark.parametrize("rule", REFUTED, ids=lambda rule: rule.name)
def test_a_wrong_rule_is_not_proved(rule: RuleDecl) -> None:
    answer = answer_to(rule)
    if rule.name in UNSHOWN:
        assert isinstance(answer, NotProved) and answer.obligation == UNSHOWN[rule.name]
        return
    assert isinstance(answer, Refuted), answer
    found = answer.counterexample
    assert not abs(found.left - found.right) < 1e-9
    assert all(size >= 1 for size in found.sizes.values())


@pytest.mark.parametrize("rule", (*FALSE, *REFUTED), ids=lambda rule: rule.name)
def test_no_wrong_rule_is_proved_by_the_calculus_alone(rule: RuleDecl) -> None:
    """The numeric witness is off, because it would contradict many wrong proofs at once."""
    assert isinstance(answer_to(rule, numbers=False), NotProved)


@pytest.mark.parametrize("rule", FALSE, ids=lambda rule: rule.name)
def test_a_rule_that_is_false_far_out_is_not_proved(rule: RuleDecl) -> None:
    assert not isinstance(prove_rule(rule, library(), shrink=False), Proved)


def test_answers_are_the_same_on_every_run() -> None:
    def told(answer: Answer) -> object:
        match answer:
            case Proved(obligations, questions):
                return obligations, questions
            case Refuted(counterexample):
                return repr(counterexample)  # as text, since a NaN from another process is not equal to one of this
            case NotProved(obligation, reason):
                # Indices are numbered in the order of their creation.
                return obligation, re.sub(r"~\d+", "~", reason)

    some = [*PROVED[::7], *REFUTED[::3], *(rule for rule in REFUTED if rule.name in UNSHOWN)]
    assert [told(prove_rule(rule, library())) for rule in some] == [told(answer_to(rule)) for rule in some]
