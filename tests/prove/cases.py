"""The rules of tests/cases and the shipped rules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.once import once
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Answer
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.rule_results import by_results
from unity_dsl.rules.generation.library_files import is_generated
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

CASES = Path(__file__).parent.parent / "cases"


@cache
def library() -> Library:
    """The shipped declarations and those of tests/cases/*.uop."""
    return load_library([CASES / "extra.uop", CASES / "infinite.uop"])


@cache
def rules_of(folder: str) -> tuple[RuleDecl, ...]:
    """Every rule of a folder of tests/cases."""
    return _rules_in(CASES / folder)


@cache
def shipped_rules() -> tuple[RuleDecl, ...]:
    """Every shipped rule that is written by hand; bench/check_rules.py tries the generated ones as well."""
    paths = sorted((CASES.parent.parent / "rules").glob("*.rules"))
    return _rules_of([path for path in paths if not is_generated(path)])


def _rules_in(folder: Path) -> tuple[RuleDecl, ...]:
    return _rules_of(sorted(folder.glob("*.rules")))


def _rules_of(paths: Iterable[Path]) -> tuple[RuleDecl, ...]:
    return tuple(by_results(rule, library()) for path in paths for rule in parse_rules(read_source(path)).rules)


def answer_to(rule: RuleDecl, *, numbers: bool = True) -> Answer:
    """The prover's answer to a rule of tests/cases, cached by the rule's name within a run."""
    return once(f"answer to {rule.name}, {numbers=}", lambda: prove_rule(rule, library(), numbers=numbers))


def rule_of(text: str) -> RuleDecl:
    """A rule from its text, `rule name(…)` and the indented lines below it."""
    (rule,) = parse_rules(Source("test.rules", text)).rules
    return rule
