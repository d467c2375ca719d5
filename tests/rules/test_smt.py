"""The questions that proofs ask z3, checked again by cvc5."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

from tests.sampling import of_the_day
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.decision.integer_arithmetic import Arithmetic
from unity_dsl.prove.normal_form.guard import Guard, compare
from unity_dsl.prove.normal_form.polynomial import Entry, Poly, Var, fresh, number, of, quotient
from unity_dsl.prove.rule_proof import follow_rule, prove_rule
from unity_dsl.prove.smtlib import smt_files, smt_text
from unity_dsl.prove.translation.form_text import Notation
from unity_dsl.syntax.parse_rules import RuleDecl

from ..prove.cases import library, rule_of, rules_of


def new_files_of(rule: RuleDecl) -> dict[str, str]:
    answer, derivations = follow_rule(rule, library())
    assert isinstance(answer, Proved)
    files = smt_files(rule.name, derivations)
    assert answer.questions or not files
    return files


files_of = cache(new_files_of)
"""The SMT files of a rule's proof; every test process proves a rule once."""

SLICED = rule_of("""\
rule sliced(x: [m]) where m >= k + n
  slice(x; dim=0, start=k, stop=k + n) => slice(x; dim=0, start=k, stop=k + n)
""")
RULES = (*rules_of("proved"), SLICED)
"""Rules whose proofs are checked; some proofs ask the solver nothing."""
KINDS = {"in_bounds", "same_shape", "same_value"}


def kinds_of(files: Iterable[str]) -> set[str]:
    return {name.split(".")[2] for name in files}


def verdict_of_cvc5(text: str) -> str:
    """The answer of cvc5 to an SMT-LIB text."""
    cvc5 = pytest.importorskip("cvc5", reason="cvc5 is not installed")
    solver = cvc5.Solver()
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "question")
    symbols, answers = parser.getSymbolManager(), []
    while not (command := parser.nextCommand()).isNull():
        answers.append(command.invoke(solver, symbols).strip())
    return " ".join(answer for answer in answers if answer not in ("", "success"))


def test_the_sample_is_not_empty() -> None:
    found: list[str] = []
    for rule in RULES:
        found += files_of(rule)
        if len(found) > 30 and kinds_of(found) == KINDS:
            return
    raise AssertionError(f"{len(found)} questions, of {kinds_of(found)}")


@pytest.mark.parametrize("rule", of_the_day(RULES, 80), ids=lambda rule: rule.name)
def test_another_solver_agrees_with_every_answer_that_a_proof_rests_on(rule: RuleDecl) -> None:
    assert kinds_of(files_of(rule)) <= KINDS
    for name, text in files_of(rule).items():
        assert "(set-info :status unsat)" in text
        assert verdict_of_cvc5(text) == "unsat", name


def test_another_solver_does_not_say_unsat_to_everything() -> None:
    """A question without its claim, which is the last assertion, is satisfiable."""
    (text, *_) = files_of(SLICED).values()
    before, _, claim = text.replace("(set-info :status unsat)", "").rpartition("(assert\n")
    assert "(not (and" in claim
    assert verdict_of_cvc5(before + "(check-sat)\n") == "sat"


def test_the_files_are_the_same_every_time() -> None:
    asking = [rule for rule in RULES[::6] if files_of(rule)]
    assert len(asking) > 5
    assert [new_files_of(rule) for rule in asking] == [files_of(rule) for rule in asking]


# ---------------------------------------------------------------------------------------------- questions of every form

INDEX, OTHER = fresh(of("n")), fresh(of("n"))


def entry(tensor: str, *index: Var) -> Poly:
    return of(Entry(tensor, tuple(map(of, index)), of("v")))


@pytest.mark.parametrize(
    ("given", "claim", "logic"),
    [
        ([compare("<", of(INDEX), of("k"))], compare("<=", of(INDEX), of("k") + of(OTHER)), "QF_LIA"),
        ([compare("==", of(INDEX), of(OTHER))], compare("==", entry("t", INDEX), entry("t", OTHER)), "QF_UFLIA"),
        ([compare(">=", of(INDEX), number(1))], compare("<", quotient(of(INDEX), number(2)), of(INDEX)), "QF_NIA"),
        ([], compare("<", quotient(entry("t", INDEX), number(3)), of("v")), "QF_UFNIA"),
        ([compare("==", of("p") * of("h"), of("m"))], compare(">=", of("m"), of("h")), "QF_LIA"),
        ([compare("<", of("@p"), of("b.0"))], compare("<", of("@p"), of("b.0") + of("<x>") - number(1)), "QF_LIA"),
        ([compare("<", of("let"), of("and"))], compare("!=", of("and"), of("let")), "QF_LIA"),
        ([compare("==", of("t"), of("u"))], compare("==", of("t"), of("u")), None),
    ],
)
def test_every_form_of_question_can_be_asked_elsewhere(given: list[Guard], claim: Guard, logic: str | None) -> None:
    arithmetic = Arithmetic(record=[])
    assert arithmetic.certain(claim, given)
    if logic is None:
        assert arithmetic.record == [], "it needs no solver"
        return
    assert arithmetic.record is not None
    (question,) = arithmetic.record
    text = smt_text("a question", question, Notation())
    assert f"(set-logic {logic})" in text
    assert verdict_of_cvc5(text) == "unsat"


def test_a_size_and_an_integer_tensor_of_one_name_are_two_things() -> None:
    assert not Arithmetic().certain(compare("==", entry("t"), of("t")))
    assert not Arithmetic().certain(compare("==", of("t") * of("t"), of("t*t")))


def test_nothing_is_kept_unless_it_is_wanted() -> None:
    arithmetic = Arithmetic()
    assert arithmetic.certain(compare("<", of(INDEX), of("n") + of("k") * of(OTHER)))
    assert arithmetic.record is None
    answer = prove_rule(SLICED, library())
    assert isinstance(answer, Proved)
    assert not any(obligation.questions for obligation in answer.obligations)
