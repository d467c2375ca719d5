"""The rules of tests/cases and those that are shipped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.prove.translation.rule_results import by_results
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


def shipped_rules() -> tuple[RuleDecl, ...]:
    """Every rule that is used by default."""
    return _rules_in(CASES.parent.parent / "rules")


def _rules_in(folder: Path) -> tuple[RuleDecl, ...]:
    paths = sorted(folder.glob("*.rules"))
    return tuple(by_results(rule, library()) for path in paths for rule in parse_rules(read_source(path)).rules)


def rule_of(text: str) -> RuleDecl:
    """A rule from its text, `rule name(…)` and the indented lines below it."""
    (rule,) = parse_rules(Source("test.rules", text)).rules
    return rule
