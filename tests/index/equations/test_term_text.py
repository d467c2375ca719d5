"""Terms as text: reading it back gives the same term, with no more parentheses than needed."""

from __future__ import annotations

from random import Random

import pytest

from unity_dsl.index.equations.term import call
from unity_dsl.index.equations.term_text import equation_text, expression_text
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.representative import representative
from unity_dsl.index.library import Library
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
            if operand.integer_range is None and not instance.whole:
                for equation in adjoint(instance, library, wrt).equations:
                    assert parsed(expression_text(equation.value)) == equation.value


LEAVES: list[Expr] = [Name("a"), Size("a"), Number(2), Number(0.5), Read("x", (Name("a"),)), Number(float("inf"))]


def drawn(random: Random, depth: int) -> Expr:
    if depth == 0 or random.random() < 0.2:
        return random.choice(LEAVES)
    left, right = drawn(random, depth - 1), drawn(random, depth - 1)
    compared = call(random.choice(["==", "!=", "<", "<=", ">", ">="]), left, right)
    # The sign of a number belongs to the number.
    negative = Number(-left.value) if isinstance(left, Number) else call("neg", left)
    operation = call(random.choice(["+", "-", "*", "/", "//", "%", "maximum"]), left, right)
    others = [compared, negative, Read("x", (left,), right), Select(compared, right, left)]
    return random.choice([operation, operation, operation, operation, *others])


@pytest.mark.parametrize("seed", range(200))
def test_every_term_reads_back(seed: int) -> None:
    term = drawn(Random(seed), depth=5)
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
