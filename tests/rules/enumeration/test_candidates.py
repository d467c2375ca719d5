"""Candidates of contexts: expected laws are found, and results do not depend on the run."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.prove.answer import Proved
from unity_dsl.rules.enumeration.candidates import candidates
from unity_dsl.rules.enumeration.context import Context, contexts
from unity_dsl.rules.enumeration.signature_table import read_table
from unity_dsl.rules.rulebook import prove_one
from unity_dsl.rules.wellformed import check_rule
from unity_dsl.syntax.ast import Apply, Name, Number
from unity_dsl.syntax.canonical_text import canonical_text
from unity_dsl.syntax.parse_rules import GraphCall, RuleDecl, parse_rules
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
    """Whether a rule has the inputs and sides of the rule in the text, whatever its name."""
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


def test_with_only_every_rule_has_the_operator_and_none_of_its_rules_is_missing() -> None:
    table = read_table(Source("table.toml", PRODUCTS))
    only = frozenset({"matmul"})
    chosen = [rule for context in contexts(table, LIBRARY, only) for rule in candidates(context, LIBRARY).candidates]
    expected = {rule.name for rule in found_in(PRODUCTS) if "matmul" in canonical_text(rule)}
    assert {rule.name for rule in chosen} == expected and expected


CONCATENATED = """
[parts]
signatures = [
  "(x: [m, k], w: [n, k]) linear(x, w)",
  "(x: [a, n], y: [b, n]) concat(x, y; dim=0)",
  "(x: [m, a + b]) slice(x; dim=1, start=0, stop=a), slice(x; dim=1, start=a, stop=a + b)",
]
"""


def test_two_products_of_one_tensor_are_the_parts_of_one_product() -> None:
    """A rule of two outputs that is not two rules of one output: every part of the product reads both weights."""
    asked = [context for context in contexts_of(CONCATENATED) if len(context.inputs) == 3]
    rules = [rule for context in asked for rule in candidates(context, LIBRARY).candidates if len(rule.left) == 2]
    wanted = """rule merged(x: [m, n], y: [k, n], z: [h, n])
  w = linear(x, concat(y, z; dim=0))
  linear(x, y), linear(x, z) => slice(w; dim=1, start=0, stop=k), slice(w; dim=1, start=k, stop=k + h)
"""
    (read,) = parse_rules(Source("rule", wanted)).rules
    inner = dict(read.definitions)
    sides = [tuple(replace(part, arguments=(inner["w"],)) for part in read.right if isinstance(part, GraphCall))]
    assert any(canonical_text((rule.left, rule.right)) == canonical_text((read.left, *sides)) for rule in rules)


def test_strided_convolutions_of_one_size_are_compared() -> None:
    """Their windows read `2 * h + r - 2` positions, which is equal for both if h and r are."""
    text = """rule a(x: [m, n, 2 * h + k - 2, i + 2 * j - 2], y: [l, n, k, i], z: [l, n, k, i])
      conv2d(x, y + z; stride=2) => conv2d(x, y; stride=2) + conv2d(x, z; stride=2)
    """
    assert any(same(rule, text) for rule in found_in(STRIDED))


STRIDED = """
[strided]
operators = 3
signatures = [
  "(x: [n, i, 2 * h + r - 2, 2 * w + s - 2], k: [o, i, r, s]) conv2d(x, k; stride=2)",
  "(x: [n, i, h, w], y: [n, i, h, w]) add(x, y)",
]
"""


def test_a_merged_dimension_is_split_where_the_other_side_splits_a_part_of_it() -> None:
    """In `x[m, n, i] -> [m, (n i)]` i is a product, but only the other side shows it."""
    text = """rule a(x: [m, n, k * h])
      ((x[m, n, i0] -> [m, (n i0)])[m, (i0 h)] -> [m, i0, h])[m, i0, h] -> [(m i0), h]
      => ((x[m, n, i0] -> [(m n), i0])[i0, (k h)] -> [i0, k, h])[i0, k, h] -> [(i0 k), h]
    """
    assert any(same(rule, text) for rule in found_in(VIEWS))


VIEWS = """
[views]
operators = 3
signatures = [
  "(x: [b, m, n]) x[b, m, n] -> [(b m), n]",
  "(x: [b, m, n]) x[b, m, n] -> [b, (m n)]",
  "(x: [b, m * n]) x[b, (m n)] -> [b, m, n]",
]
"""


def test_what_a_row_of_a_table_commutes_with_is_no_instance_of_a_law_of_other_rows() -> None:
    """Ids that are equal by chance must not suggest the more general law that reads other ids on one side."""
    table = """
[rows]
operators = 2
numbers = ["c"]
signatures = [
  "(i: int<v>[m], w: [v, n]) embedding(i, w)",
  "(x: [m, n]) scale(x; factor=c)",
  "(x: [m, n]) relu(x)",
]
"""
    texts = {canonical_text((rule.left, rule.right)) for rule in found_in(table)}
    for function in ("relu({})", "scale({}; factor=c)"):
        law = f"embedding(x, {function.format('y')}) => {function.format('embedding(x, y)')}"
        (wanted,) = parse_rules(Source("rule", f"rule law(x: int<m>[n], y: [m, k])\n  {law}\n")).rules
        assert canonical_text((wanted.left, wanted.right)) in texts, law


def test_a_law_of_positive_numbers_alone_has_its_condition() -> None:
    table = """
[factors]
operators = 2
numbers = ["c"]
signatures = ["(x: [n]) scale(x; factor=c)", "(x: [n]) relu(x)"]
"""
    rules = found_in(table)
    through = [rule for rule in rules if {"relu", "scale"} <= set(re.findall("relu|scale", canonical_text(rule)))]
    assert through and all(canonical_text(rule.conditions) == canonical_text(POSITIVE) for rule in through)
    assert all(isinstance(prove_one(check_rule(rule, LIBRARY), LIBRARY).answer, Proved) for rule in through)


POSITIVE = (Apply(">=", (Name("c"), Number(0))),)
