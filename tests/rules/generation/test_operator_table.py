"""The signature table of an operator, from its declaration."""

from __future__ import annotations

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
