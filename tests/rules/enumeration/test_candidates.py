"""Candidates of contexts: laws that are found, and that nothing depends on the run."""

from __future__ import annotations

import pickle

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.prove.answer import Proved
from unity_dsl.rules.enumeration.candidates import candidates
from unity_dsl.rules.enumeration.context import Context, contexts
from unity_dsl.rules.enumeration.signature_table import read_table
from unity_dsl.rules.rulebook import prove_one
from unity_dsl.rules.wellformed import check_rule
from unity_dsl.syntax.canonical_text import canonical_text
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
PRODUCTS = """
[products]
operators = 2
signatures = [
  "(x: [m, k], y: [k, n]) matmul(x, y)",
  "(x: [m, n]) x[m, n] -> [n, m]",
]
"""


def contexts_of(table: str) -> tuple[Context, ...]:
    return contexts(read_table(Source("table.toml", table)), LIBRARY)


def found_in(table: str) -> list[RuleDecl]:
    return [rule for context in contexts_of(table) for rule in candidates(context, LIBRARY).candidates]


def same(rule: RuleDecl, text: str) -> bool:
    """Whether a rule is what the text says, names of the rule aside."""
    (read,) = parse_rules(Source("rule", text)).rules
    return all(canonical_text(getattr(rule, part)) == canonical_text(getattr(read, part)) for part in PARTS)


PARTS = ("inputs", "left", "right")


def test_laws_of_products_and_transposes_are_found_and_proved() -> None:
    rules = found_in(PRODUCTS)
    wanted = [
        "rule a(x: [m, n], y: [n, k], z: [k, h])\n  matmul(matmul(x, y), z) => matmul(x, matmul(y, z))\n",
        "rule b(x: [m, n])\n  (x[m, n] -> [n, m])[n, m] -> [m, n] => x\n",
    ]
    for text in wanted:
        assert any(same(rule, text) for rule in rules), text
    for rule in rules:
        assert isinstance(prove_one(check_rule(rule, LIBRARY), LIBRARY).answer, Proved), canonical_text(rule)


def test_candidates_are_the_same_on_every_run_and_from_a_copy_of_the_context() -> None:
    for context in contexts_of(PRODUCTS):
        copy = pickle.loads(pickle.dumps(context))
        assert copy == context and copy.digest == context.digest
        assert candidates(copy, LIBRARY) == candidates(context, LIBRARY)
