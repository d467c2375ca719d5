"""Operators and rules found without parsing: the same as a parse of the whole text gives."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from unity_dsl.resources import folder
from unity_dsl.rules.shipped_fusions import fitting_rules, operators_of_the_left_side
from unity_dsl.syntax.ast import OperatorDecl
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.outline import called_before_arrow, outline, outline_rules
from unity_dsl.syntax.parse_ops import parse_operator, parse_ops
from unity_dsl.syntax.parse_rules import parse_rule, parse_rules
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

RULES = sorted(folder("rules").glob("*.rules"))
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
    """The faulty operator is last, since the parse of a whole text stops at the first fault."""
    source = Source("text.uop", f"{RELU}\n# Comment.\n{fault}")
    found = outline(source)
    assert found is not None
    assert parse_operator(found["relu"]).name == "relu"
    with pytest.raises(InputError) as whole:
        parse_ops(source)
    with pytest.raises(InputError) as part:
        parse_operator(found["bad"])
    assert part.value.diagnostic == whole.value.diagnostic


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_the_rules_of_a_shipped_text_are_those_of_its_parse(path: Any) -> None:
    source = read_source(path)
    whole, found = parse_rules(source).rules, outline_rules(source)
    assert found is not None and list(found) == [rule.name for rule in whole]
    assert with_places(tuple(map(parse_rule, found.values()))) == with_places(whole)
    for rule in whole:
        assert called_before_arrow(found[rule.name]) <= operators_of_the_left_side(rule), rule.name


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rules_that_fit_are_those_of_a_parse_of_all(path: Any) -> None:
    source = read_source(path)
    whole = parse_rules(source).rules
    for present in ({"concat", "relu"}, {"linear", "add", "rearrange", "slice"}, set[str]()):
        fitting = [rule for rule in whole if operators_of_the_left_side(rule) <= present]
        assert list(fitting_rules(source, present)) == fitting


@pytest.mark.parametrize(
    ("body", "called"),
    [
        ("relu(x) => neg(x)", {"relu"}),
        ("relu(x)\n  => neg(x)", {"relu"}),
        ("n = neg(x)\n  relu(n) => n", {"relu"}),
        ("where m >= 2\n  relu(x) + x => neg(x)  # => exp(x)", {"relu"}),
        ("concat(\n    relu(x),\n    neg(x); dim=0\n  )\n  => neg(x)", {"concat", "relu", "neg"}),
        ("n = concat(x,\n    exp(x); dim=0)\n  relu(n), slice(x; dim=0, start=0, stop=m) => n, x", {"relu", "slice"}),
        ("relu(x)", set()),
    ],
)
def test_what_a_left_side_is_seen_to_call(body: str, called: set[str]) -> None:
    found = outline_rules(Source("one.rules", f"# one\nrule r(x: [m, b..])\n  {body}\n"))
    assert found is not None and called_before_arrow(found["r"]) == called
