"""Operators that no table names: signatures from their declarations, and the laws of such operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.resources import folder
from unity_dsl.rules.enumeration.candidates import candidates
from unity_dsl.rules.enumeration.context import contexts
from unity_dsl.rules.enumeration.declared_signatures import declared_signatures, with_operators
from unity_dsl.rules.enumeration.signature_table import load_table, read_table
from unity_dsl.syntax.ast import Name
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView
from unity_dsl.syntax.span import Source

OWN = """
## The product of one tensor with the positive part of another.
op gate(x: [b..], g: [b..]) -> y: [b..]
  y[b..] = x[b..] * maximum(g[b..], 0)

## A tensor times a number, moved along a dimension.
op turn(x: [f.., d, g..]; dim, by) -> y: [f.., d, g..]
  where rank(f) == dim
  y[f.., d, g..] = x[f.., |d| - 1 - d, g..] * by
"""
ADDITION = """
[sums]
accompanies = true
signatures = ["(x: [m, n], y: [m, n]) add(x, y)", "(x: [m]) relu(x)", "(x: [m, n, k]) relu(x)"]
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("own")
    (Path(folder) / "own.uop").write_text(OWN)
    return load_library([Path(folder)])


def test_ranks_are_those_of_the_declaration_and_counted_dimensions_every_one(library: Library) -> None:
    assert declared_signatures("gate", library) == (
        "(x0: [m], x1: [m]) gate(x0, x1)",
        "(x0: [m, n], x1: [m, n]) gate(x0, x1)",
    )
    assert "(x0: [m, n]) reduce_max(x0[m, n] -> [m])".replace("x0", "x") in declared_signatures("reduce_max", library)
    turns = declared_signatures("turn", library)
    assert "(x0: [m, n, k]) turn(x0; dim=1, by=c)" in turns
    assert len(set(turns)) == len(turns)


def test_only_operators_of_its_ranks_accompany_a_new_one(library: Library) -> None:
    table = with_operators(read_table(Source("table.toml", ADDITION)), library, ["gate", "relu"])
    assert [theme.name for theme in table.themes] == ["sums", "gate"]
    assert "(x: [m, n], y: [m, n]) add(x, y)" in table.themes[1].signatures
    assert "(x: [m, n, k]) relu(x)" not in table.themes[1].signatures


def test_every_candidate_has_the_operator(library: Library) -> None:
    table = with_operators(read_table(Source("table.toml", ADDITION)), library, ["gate"])
    only = frozenset({"gate"})
    rules = [rule for context in contexts(table, library, only) for rule in candidates(context, library).candidates]
    assert all(any("gate" in names(side) for side in (*rule.left, *rule.right)) for rule in rules)
    texts = {f"{rule.left[0]} => {rule.right[0]}" for rule in rules}
    x, y, z = Name("x"), Name("y"), Name("z")
    left = GraphCall("add", (GraphCall("gate", (x, y)), GraphCall("gate", (z, y))))
    assert f"{left} => {GraphCall('gate', (GraphCall('add', (x, z)), y))}" in texts
    assert f"{GraphCall('gate', (x, GraphCall('relu', (y,))))} => {GraphCall('gate', (x, y))}" in texts


def names(expr: GraphExpr) -> set[str]:
    match expr:
        case GraphCall(name, arguments):
            return {name, *(found for part in arguments for found in names(part))}
        case GraphView(operand):
            return names(operand)
    return set()


def test_unknown_operators_have_a_diagnostic(library: Library) -> None:
    with pytest.raises(InputError) as caught:
        with_operators(load_table(folder("rules") / "signatures.toml"), library, ["gait"])
    assert caught.value.diagnostic.code == "E102"
