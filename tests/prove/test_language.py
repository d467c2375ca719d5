"""Parsing of `.rules` texts: syntax trees and diagnostics."""

from __future__ import annotations

import pytest

from unity_dsl.syntax.ast import Apply, Name, Number
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.grammar import grammar_text
from unity_dsl.syntax.parse_rules import GraphCall, GraphView, RuleDim, RuleInput, RulesFile, parse_rules
from unity_dsl.syntax.span import Source
from unity_dsl.syntax.tables import build

from .cases import rule_of


def test_the_grammar_has_no_conflict() -> None:
    build(grammar_text("rules"), strict=True)


def test_a_file_may_be_empty() -> None:
    assert parse_rules(Source("f.rules", "# nothing\n")) == RulesFile(())


def test_every_form() -> None:
    rule = rule_of("""\
## One line.
## Another.
rule f(x: [b.., p * m, 2], ids: int<v>[@q, n]) where v >= 2
  where m == 2 * k, n <= v
  h = partition[p; dim=-1](x)
  relu(h), ids
  => x[a, (b c)] -> [c, 1], ids
""")
    assert rule.name == "f" and rule.doc == "One line.\nAnother."
    product = Apply("*", (Name("p"), Name("m")))
    assert rule.inputs == (
        RuleInput("x", (RuleDim(Name("b"), rest=True), RuleDim(product), RuleDim(Number(2)))),
        RuleInput("ids", (RuleDim(Name("q"), device=True), RuleDim(Name("n"))), Name("v")),
    )
    assert [condition.function for condition in rule.conditions] == [">=", "==", "<="]
    assert rule.definitions == (("h", GraphCall("partition", (Name("x"),), (("dim", Number(-1)),), ("p",))),)
    assert rule.left == (GraphCall("relu", (Name("h"),)), Name("ids"))
    assert rule.right == (GraphView(Name("x"), (("a",), ("b", "c")), (("c",), (1,))), Name("ids"))
    assert rule.span is not None and rule.span.line == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + y", GraphCall("add", (Name("x"), Name("y")))),
        ("x - y", GraphCall("sub", (Name("x"), Name("y")))),
        ("x * y", GraphCall("mul", (Name("x"), Name("y")))),
        ("x / y", GraphCall("div", (Name("x"), Name("y")))),
        ("x + 2", GraphCall("shift", (Name("x"),), (("by", Number(2)),))),
        ("x - 2", GraphCall("shift", (Name("x"),), (("by", Number(-2)),))),
        ("3 * x", GraphCall("scale", (Name("x"),), (("factor", Number(3)),))),
        ("x / 4", GraphCall("scale", (Name("x"),), (("factor", Apply("/", (Number(1), Number(4)))),))),
        ("-x", GraphCall("scale", (Name("x"),), (("factor", Number(-1)),))),
        ("(x)", Name("x")),
        ("f(x)[] -> []", GraphView(GraphCall("f", (Name("x"),)), (), ())),
    ],
)
def test_infix_signs_are_operators(text: str, expected: object) -> None:
    assert rule_of(f"rule f(x: [m], y: [m])\n  {text} => x\n").left == (expected,)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("rule f(x: [m])\n", "E013"),
        ("rule f(x)\n  x => x\n", "E010"),
        ("rule f(x: [m])\n  x\n", "E010"),
        ("rule f(x: [m])\n  x => x => x\n", "E010"),
        ("rule f(x: [m])\n  partition[(p q)](x) => x\n", "E010"),
        ("rule f(x: [m])\n  x[a, 1.5] -> [a] => x\n", "E010"),
        ("rule f(x: [m])\n  relu(x; a=1, a=2) => x\n", "E024"),
        ("rule f(x: [@p, @p, m])\n  x => x\n", "E024"),
        ("rule f(x: [m])\n  x => x\nrule f(x: [m])\n  x => x\n", "E024"),
        ("rule f(x: [m])\n  relu(x => x\n", "E009"),
        ("rule f(x: [m])\n  " + "relu(" * 100 + "x" + ")" * 100 + " => x\n", "E005"),
        ("rule f(x: [m])\n  x" + " + x" * 1000 + " => x\n", "E005"),
    ],
)
def test_faults_are_one_diagnostic_with_a_place(text: str, code: str) -> None:
    with pytest.raises(InputError) as error:
        parse_rules(Source("f.rules", text))
    assert error.value.diagnostic.code == code
    assert error.value.diagnostic.span is not None
