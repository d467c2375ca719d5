"""Operators that are found without parsing: the same that a parse of the whole text gives."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from unity_dsl.resources import folder
from unity_dsl.syntax.ast import OperatorDecl
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.outline import outline
from unity_dsl.syntax.parse_ops import parse_operator, parse_ops
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

SHIPPED = sorted(folder("ops").glob("*.uop"))
RELU = "op relu(x: [b..]) -> y: [b..]\n  y[b..] = maximum(x[b..], 0)\n"
NEG = "# no doc\n## Second\n## one.\nop neg(\n  x: [b..]\n) -> y: [b..]\n  y[b..] = -x[b..]\n"
TWO = f"# of the file\n\n## First.\n{RELU}\n{NEG}"


def with_places(node: Any) -> Any:
    """A tree with the spans that equality leaves out."""
    if isinstance(node, tuple):
        return tuple(map(with_places, node))
    if is_dataclass(node) and not isinstance(node, Source):
        return type(node).__name__, *(with_places(getattr(node, field.name)) for field in fields(node))
    return node


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_operators_of_a_shipped_text_are_those_of_its_parse(path: Any) -> None:
    source = read_source(path)
    whole = [found for found in parse_ops(source).declarations if isinstance(found, OperatorDecl)]
    found = outline(source)
    assert (found is None) == (path.stem in ("functions", "parallel"))
    if found is not None:
        assert list(found) == [operator.name for operator in whole]
        parsed = tuple(map(parse_operator, found.values()))
        assert with_places(parsed) == with_places(tuple(whole))


def test_comments_above_an_operator_belong_to_it() -> None:
    found = outline(Source("two.uop", TWO))
    assert found is not None
    first, second = map(parse_operator, found.values())
    assert (first.name, first.doc) == ("relu", "First.")
    assert (second.name, second.doc) == ("neg", "Second\none.")
    assert second.span is not None and str(second.span) == "two.uop:10:1"
    assert found["neg"].text == NEG


@pytest.mark.parametrize(
    "text",
    [
        "fn f(x) = x\n",
        f"{RELU}fn f(x) = x\n",
        f"opp neg(x: [b..]) -> y: [b..]\n{RELU}",
        f"{RELU}y[b..] = x[b..]\n",
        f"  op inner(x: [b..]) -> y: [b..]\n{RELU}junk\n",
        f")\n{RELU}",
        RELU + RELU,
    ],
)
def test_a_text_that_is_not_plainly_a_list_of_operators_has_no_outline(text: str) -> None:
    assert outline(Source("text.uop", text)) is None


@pytest.mark.parametrize(
    "fault",
    [
        "op bad(x: [b..]) -> y: [b..]\n",  # no body
        "op bad(x: [b..]) -> y: [b..]\n  y[b..] = x[b..\n",
        "op bad(x: [b..]) -> y: [b..]\n  y[b..] = x[b..] +\n",
        "op bad(x: [b..]) -> y: [b..]\n    y[b..] = x[b..]\n  torch: x\n",
        "op bad(x: [b..]) -> y: [b..]\n  y[b..] = x[b..] $ 1\n",
        "op bad(x: [b..]) -> y: [b..]\n\ty[b..] = x[b..]\n",
    ],
)
def test_a_fault_is_told_as_in_the_whole_text(fault: str) -> None:
    """Where the operator that has it stands last, since the parse of a whole text stops at the first fault."""
    source = Source("text.uop", f"{RELU}\n# Comment.\n{fault}")
    found = outline(source)
    assert found is not None
    assert parse_operator(found["relu"]).name == "relu"
    with pytest.raises(InputError) as whole:
        parse_ops(source)
    with pytest.raises(InputError) as part:
        parse_operator(found["bad"])
    assert part.value.diagnostic == whole.value.diagnostic
