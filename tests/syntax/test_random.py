"""Random syntax trees, random layouts and random damage."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.syntax.generate import EXPRESSIONS, GRAPHS, TENSORS, graph_words, laid_out, model_words, words
from tests.syntax.samples import MODEL, OPS, RULES
from unity_dsl.syntax.ast import Assign, Expr, ModelExpr, OperatorDecl
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.format import format_model, format_ops, format_rules
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.parse_rules import GraphExpr, parse_rules
from unity_dsl.syntax.render import render
from unity_dsl.syntax.span import Source


@settings(max_examples=150)
@given(EXPRESSIONS, st.data())
def test_a_written_expression_is_read_back(expr: Expr, data: st.DataObject) -> None:
    body = data.draw(st.composite(laid_out)(["(", *words(expr), ")"]))
    text = f"op f(x: [i]) -> y: [i]\n  y[i] = ({body})\n"
    source = Source("f.uop", text)
    (declaration,) = parse_ops(source).declarations
    assert isinstance(declaration, OperatorDecl)
    assert declaration.statements[0].value == expr
    formatted = format_ops(source)
    assert parse_ops(Source("f.uop", formatted)) == parse_ops(source)
    assert format_ops(Source("f.uop", formatted)) == formatted
    assert formatted.count("#") == text.count("#")


@settings(max_examples=150)
@given(TENSORS, st.data())
def test_a_written_tensor_expression_is_read_back(expr: ModelExpr, data: st.DataObject) -> None:
    body = data.draw(st.composite(laid_out)(["(", *model_words(expr), ")"]))
    text = f"model m\n  x = ({body})\n"
    source = Source("m.udl", text)
    (statement,) = parse_model(source).model.body
    assert isinstance(statement, Assign)
    assert statement.value == expr
    formatted = format_model(source)
    assert parse_model(Source("m.udl", formatted)) == parse_model(source)
    assert format_model(Source("m.udl", formatted)) == formatted
    assert formatted.count("#") == text.count("#")


@settings(max_examples=150)
@given(GRAPHS, st.data())
def test_a_written_side_of_a_rule_is_read_back(expr: GraphExpr, data: st.DataObject) -> None:
    body = data.draw(st.composite(laid_out)(["(", *graph_words(expr), ")"]))
    text = f"rule f(x: [i])\n  ({body}) => x\n"
    source = Source("f.rules", text)
    (rule,) = parse_rules(source).rules
    assert rule.left == (expr,)
    formatted = format_rules(source)
    assert parse_rules(Source("f.rules", formatted)) == parse_rules(source)
    assert format_rules(Source("f.rules", formatted)) == formatted
    assert formatted.count("#") == text.count("#")


WORD = re.compile(r"\n[ ]*|[A-Za-z0-9_.]+|[^A-Za-z0-9_.\s]|[ ]+")
EXTRA = [
    "(",
    ")",
    "[",
    "]",
    "|",
    "sum",
    "loss",
    "->",
    "=>",
    "..",
    "=",
    "<",
    ",",
    ";",
    "x",
    "3",
    "\n",
    "\n  ",
    "\n    ",
    "@",
    "é",
    "\t",
]


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """Part of a text in which a few words are lost, added or replaced."""
    pieces = WORD.findall(text)
    start = draw(st.integers(0, len(pieces) - 1))
    pieces = pieces[max(0, start - 150) : start + 150]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(pieces) - 1))
        pieces[at : at + draw(st.integers(0, 2))] = draw(st.lists(st.sampled_from(EXTRA), max_size=2))
    return "".join(pieces)


def check_diagnostic(error: InputError, source: Source) -> None:
    diagnostic = error.diagnostic
    assert diagnostic.code in CODES
    assert diagnostic.span is not None
    assert diagnostic.span.source is source
    assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(source.text)
    assert diagnostic.message
    assert render(diagnostic).splitlines()[-1] == f"help: unityc explain {diagnostic.code}"


@settings(max_examples=300)
@given(damaged(OPS))
def test_damaged_operators_give_a_diagnostic_or_parse(text: str) -> None:
    source = Source("f.uop", text)
    try:
        parse_ops(source)
    except InputError as error:
        check_diagnostic(error, source)
    else:
        formatted = format_ops(source)
        assert parse_ops(Source("f.uop", formatted)) == parse_ops(source)
        assert format_ops(Source("f.uop", formatted)) == formatted


@settings(max_examples=300)
@given(damaged(MODEL))
def test_a_damaged_model_gives_a_diagnostic_or_parses(text: str) -> None:
    source = Source("m.udl", text)
    try:
        parse_model(source)
    except InputError as error:
        check_diagnostic(error, source)
    else:
        formatted = format_model(source)
        assert parse_model(Source("m.udl", formatted)) == parse_model(source)
        assert format_model(Source("m.udl", formatted)) == formatted


@settings(max_examples=300)
@given(damaged(RULES))
def test_damaged_rules_give_a_diagnostic_or_parse(text: str) -> None:
    source = Source("f.rules", text)
    try:
        parse_rules(source)
    except InputError as error:
        check_diagnostic(error, source)
    else:
        formatted = format_rules(source)
        assert parse_rules(Source("f.rules", formatted)) == parse_rules(source)
        assert format_rules(Source("f.rules", formatted)) == formatted


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_any_text_gives_a_diagnostic_or_parses(text: str) -> None:
    for parse in (parse_ops, parse_model, parse_rules):
        source = Source("any", text)
        try:
            parse(source)
        except InputError as error:
            check_diagnostic(error, source)
