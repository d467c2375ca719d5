"""Terms as text: reading it back gives the same term, with no more parentheses than needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.index.adjoint import adjoint
from unity_dsl.index.library import Library
from unity_dsl.index.notation import equation_text, expression_text
from unity_dsl.index.representative import representative
from unity_dsl.index.term import call
from unity_dsl.syntax.ast import Expr, Name, Number, OperatorDecl, Read, Select, Size
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.span import Source


def parsed(text: str) -> Expr:
    (operator,) = parse_ops(Source("test.uop", f"op f(x: [a]) -> y: [a]\n  y[a] = {text}\n")).declarations
    assert isinstance(operator, OperatorDecl)
    return operator.statements[0].value


def test_every_shipped_statement_reads_back(library: Library) -> None:
    for operator in library.operators.values():
        for statement in (*operator.statements, *operator.evaluation):
            assert parsed(expression_text(statement.value)) == statement.value
    for function in library.functions.values():
        for _, derivative in function.derivatives:
            assert parsed(expression_text(derivative)) == derivative


def test_every_gradient_reads_back(library: Library) -> None:
    for operator in library.operators.values():
        instance = representative(operator).instance
        for wrt, operand in enumerate(instance.inputs):
            if operand.integer_range is None:
                for equation in adjoint(instance, library, wrt).equations:
                    assert parsed(expression_text(equation.value)) == equation.value


LEAVES = st.sampled_from([Name("a"), Size("a"), Number(2), Number(0.5), Read("x", (Name("a"),)), Number(float("inf"))])


TERMS: st.SearchStrategy[Expr] = st.deferred(lambda: st.one_of(LEAVES, LEAVES, LEAVES, LEAVES, *NODES))
COMPARISONS = st.builds(call, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), TERMS, TERMS)
NODES = (
    COMPARISONS,
    st.builds(call, st.sampled_from(["+", "-", "*", "/", "//", "%"]), TERMS, TERMS),
    st.builds(call, st.just("maximum"), TERMS, TERMS),
    st.builds(Select, COMPARISONS, TERMS, TERMS),
    st.builds(lambda index, fill: Read("x", (index,), fill), TERMS, TERMS),
    # The sign of a number belongs to the number.
    TERMS.map(lambda term: Number(-term.value) if isinstance(term, Number) else call("neg", term)),
)


@given(TERMS)
def test_every_term_reads_back(term: Expr) -> None:
    assert parsed(expression_text(term)) == term


@pytest.mark.parametrize(
    "text",
    [
        "a * (b + c)",
        "a - (b - c)",
        "a - b - c",
        "a / (b * c)",
        "-(a * b)",
        "-a * b",
        "[a < b] * c",
        "select(a < b, x[a + 1 else 0], -inf)",
    ],
)
def test_parentheses_are_those_that_matter(text: str) -> None:
    assert expression_text(parsed(text)) == text


def test_axes_tensors_and_numbers_may_be_renamed(library: Library) -> None:
    found = representative(library.operators["scale"])
    (equation,) = found.instance.equations
    assert equation_text(equation) == "y[b0] = x[b0] * 3"
    assert equation_text(equation, {**found.names, "y": "z"}, found.numbers) == "z[b..] = x[b..] * factor"
