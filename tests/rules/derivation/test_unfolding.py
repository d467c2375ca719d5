"""Unfolding of operators that are defined by others; a rule that is not a definition is refused."""

from __future__ import annotations

import pytest

from tests.prove.cases import library
from unity_dsl.rules.derivation.derivability import Derivability
from unity_dsl.rules.derivation.unfolding import Unfolding
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

DEFINITIONS = """\
rule linear_bias_defined(x: [b.., i], w: [o, i], c: [o])
  linear_bias(x, w, c) => linear(x, w) + c

rule reversed_twice(x: [2, b..])
  flip(x; dim=0) => concat(slice(x; dim=0, start=1, stop=2), slice(x; dim=0, start=0, stop=1); dim=0)
"""
LAWS = """\
rule linear_adds(x: [b.., i], y: [b.., i], w: [o, i])
  linear(x + y, w) => linear(x, w) + linear(y, w)

rule sums_associate(x: [b..], y: [b..], z: [c..])
  x + y + z => x + (y + z)
"""


def rules(text: str) -> tuple[RuleDecl, ...]:
    return parse_rules(Source("laws.rules", text)).rules


def steps(text: str, definitions: str = DEFINITIONS) -> list[str] | None:
    known = Derivability(library(), frozenset({"add"}), Unfolding.of(rules(definitions), library()))
    for one in rules(LAWS):
        known.add(one)
    found = known.derive(rules(text)[0])
    return None if found is None else [step.rule for step in found]


SWAPPED = "concat(slice(x; dim=0, start=1, stop={}), slice(x; dim=0, start=0, stop=1); dim=0)"


@pytest.mark.parametrize(
    ("inputs", "law", "expected"),
    [
        ("x: [b, i], w: [o, i], c: [o]", "linear(x, w) + c => linear_bias(x, w, c)", []),
        (
            "x: [b, i], y: [b, i], w: [o, i], c: [o]",
            "linear_bias(x + y, w, c) => linear(x, w) + linear(y, w) + c",
            ["linear_adds"],
        ),
        # The definition applies to two rows only.
        ("x: [2, b]", f"flip(x; dim=0) => {SWAPPED.format(2)}", []),
        ("x: [3, b]", f"flip(x; dim=0) => {SWAPPED.format(3)}", None),
        ("x: [2, 2]", f"flip(x; dim=1) => {SWAPPED.format(2)}", None),
        ("x: [b, i], w: [o, i], c: [o], d: [o]", "linear_bias(x, w, c) => linear_bias(x, w, d)", None),
    ],
)
def test_calls_are_unfolded_where_their_definition_is_of_their_sizes(
    inputs: str, law: str, expected: list[str] | None
) -> None:
    assert steps(f"rule law({inputs})\n  {law}\n") == expected


def test_operands_are_unfolded_as_well() -> None:
    nested = "rule law(x: [b, i], w: [i, i], c: [i])\n  linear_bias(linear_bias(x, w, c), w, c) => {}\n"
    assert steps(nested.format("linear(linear(x, w) + c, w) + c")) == []
    assert steps(nested.format("linear(linear(x, w), w) + (linear(c, w) + c)")) is None


@pytest.mark.parametrize(
    ("inputs", "law"),
    [
        ("x: [b..]", "relu(neg(x)) => neg(x)"),
        ("x: [b..]", "x => relu(x)"),
        ("x: [b..]", "relu(x) => relu(relu(x))"),
        ("x: [b..], y: [b..]", "relu(x), relu(y) => x, y"),
        ("x: [b..], y: [b..]", "relu(x) => maximum(x, y)"),
    ],
)
def test_what_defines_no_call_by_others_is_refused(inputs: str, law: str) -> None:
    with pytest.raises(ValueError, match="define"):
        Unfolding.of(rules(f"rule law({inputs})\n  {law}\n"), library())
