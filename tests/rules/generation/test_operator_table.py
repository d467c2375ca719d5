"""The signature table that is derived from an operator's declaration."""

from __future__ import annotations

from pathlib import Path

from unity_dsl.cli import run
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.rules.generation.operator_table import operator_table
from unity_dsl.syntax.span import Source

GATES = """\
op gate_of_any_rank(x: [b..], g: [b..]; slope) -> y: [b..]
  y[b..] = x[b..] * relu(g[b..]) * slope

op gate_of_vectors(x: [n], g: [n]) -> y: [n]
  y[n] = x[n] * relu(g[n])
"""


def test_a_group_of_dimensions_stands_for_two() -> None:
    library = library_of([*library_sources(), Source("gates.uop", GATES)])
    (theme,) = operator_table("gate_of_any_rank", library).themes
    assert theme.name == "gate_of_any_rank" and theme.operators == 3
    assert theme.signatures == (
        "(x0: [m, n], x1: [m, n]) gate_of_any_rank(x0, x1; slope=c)",
        "(x: [m, n], y: [m, n]) add(x, y)",
        "(x: [m, n], y: [m, n]) mul(x, y)",
        "(x: [m, n]) scale(x; factor=c)",
        "(x: [m, n]) relu(x)",
        "(x: [a, n], y: [b, n]) concat(x, y; dim=0)",
        "(x: [m, a], y: [m, b]) concat(x, y; dim=1)",
        "(x: [m, k], w: [n, k]) linear(x, w)",
        "(x: [m, n]) x[m, n] -> [n, m]",
    )
    (theme,) = operator_table("gate_of_vectors", library).themes
    assert theme.signatures == (
        "(x0: [m], x1: [m]) gate_of_vectors(x0, x1)",
        "(x: [m], y: [m]) add(x, y)",
        "(x: [m], y: [m]) mul(x, y)",
        "(x: [m]) scale(x; factor=c)",
        "(x: [m]) relu(x)",
        "(x: [a], y: [b]) concat(x, y; dim=0)",
    )


OUTER = """\
op outer(x: [m], y: [n]) -> z: [m, n]
  z[m, n] = x[m] * y[n]
"""


def test_a_result_of_a_higher_rank_is_taken_apart_as_well() -> None:
    library = library_of([*library_sources(), Source("outer.uop", OUTER)])
    (theme,) = operator_table("outer", library).themes
    assert theme.signatures[0] == "(x0: [m], x1: [n]) outer(x0, x1)"
    assert {
        "(x: [m], y: [m]) add(x, y)",
        "(x: [m, n], y: [m, n]) add(x, y)",
        "(x: [m, n]) scale(x; factor=c)",
        "(x: [m, a], y: [m, b]) concat(x, y; dim=1)",
        "(x: [m, n]) x[m, n] -> [n, m]",
        "(x: [m, n]) reduce_sum(x[m, n] -> [m])",
    } <= set(theme.signatures)
    assert len(set(theme.signatures)) == len(theme.signatures)


def test_rules_of_outer_products_are_generated(tmp_path: Path) -> None:
    """Distribution, factors, parts, transposition and sums of rows, each proved."""
    (tmp_path / "outer.uop").write_text(OUTER)
    folder = str(tmp_path / "rules")
    assert run(["rules", "generate", "--only", "outer", "--ops", str(tmp_path / "outer.uop"), "-o", folder]) == 0
    text = (tmp_path / "rules" / "outer.rules").read_text()
    for rule in (
        "outer(x, y) + outer(x, z) => outer(x, y + z)",
        "outer(x, scale(y; factor=c)) => scale(outer(x, y); factor=c)",
        "concat(outer(x, y), outer(x, z); dim=1) => outer(x, concat(y, z; dim=0))",
        "outer(x, y)[m, n] -> [n, m] => outer(y, x)",
        "reduce_sum(outer(x * y, z)[m, n] -> [m]) => x * reduce_sum(outer(y, z)[m, n] -> [m])",
    ):
        assert f"  {rule}\n" in text
