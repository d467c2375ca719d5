"""Configurations and rules with device axes state the same theorems, checked over all encodings of an operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.cases import library
from unity_dsl.graph.layout_typing import Along, Linearly, Role
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.representative import representative
from unity_dsl.prove.answer import Proved, Refuted
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.rules.sharding_rules import (
    Encoding,
    Had,
    configuration_rules,
    configurations,
    encoding_in,
    encoding_of,
    encodings,
    role_of,
    rule_of,
    rule_text,
)
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.read import read_source

SHIPPED = Path(__file__).parents[2] / "rules" / "sharding.rules"


def instance(name: str) -> Instance:
    return representative(library().operators[name], 1).instance


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear", {Along("b0"), Along("o"), Along("i"), Linearly((0,)), Linearly((1,))}),
        ("matmul", {Along("b0"), Along("m"), Along("n"), Along("k"), Linearly((0,)), Linearly((1,))}),
    ],
)
def test_proved_configurations_and_proved_rules_are_the_same_set(name: str, expected: set[Role]) -> None:
    """For every encoding of operands and result, the rule is proved iff a configuration has this encoding."""
    made = instance(name)
    proved = set(configurations(made, ShardingTheorems(library())))
    assert proved == expected
    read = set()
    tried = 0
    for encoding in encodings(made):
        tried += 1
        rule = rule_of("encoded", made, encoding)
        assert encoding_in(rule) == (name, encoding)
        if isinstance(prove_rule(rule, library(), shrink=False, numbers=False), Proved):
            role = role_of(encoding, made)
            assert role is not None, f"a rule that is no configuration: {rule_text('encoded', made, encoding)}"
            assert encoding_of(role, made) == encoding
            read.add(role)
    assert tried == (2 + 2) ** 3 - 1 if name == "linear" else tried == (2 + 3) ** 3 - 1
    assert read == proved


WRONG = {
    "a product of terms": (Encoding((Had.TERM, Had.TERM), Had.TERM), Linearly((0, 1))),
    "terms of what all devices have": (Encoding((Had.WHOLE, Had.WHOLE), Had.TERM), None),
    "slices where terms are": (Encoding((1, 1), Had.WHOLE), None),
    "slices that are not those of the result": (Encoding((0, Had.WHOLE), 1), None),
    "terms and slices mixed": (Encoding((Had.TERM, 0), 1), None),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_configuration_is_refused_on_both_sides(case: str) -> None:
    encoding, role = WRONG[case]
    made = instance("linear")
    answer = prove_rule(rule_of("wrong", made, encoding), library(), shrink=False)
    assert not isinstance(answer, Proved)
    holds = ShardingTheorems(library()).about(made, [True, True])
    if role is None:
        assert role_of(encoding, made) is None
    else:
        assert role_of(encoding, made) == role and not holds(role)
        assert isinstance(answer, Refuted)


def test_what_a_configuration_does_inside_of_an_operator_is_no_rule() -> None:
    """A configuration adds a bias once, after the sum over the devices; a rule would add it on every device."""
    made = instance("linear_bias")
    role = Along("i")
    assert role in configurations(made, ShardingTheorems(library()))
    encoding = encoding_of(role, made)
    assert encoding is not None
    assert isinstance(prove_rule(rule_of("biased", made, encoding), library(), shrink=False), Refuted)


def test_the_shipped_rules_are_those_of_the_configurations() -> None:
    shipped = {rule.name: rule for rule in parse_rules(read_source(SHIPPED)).rules}
    names = ("linear", "matmul", "relu", "add", "embedding", "softmax")
    operators = [library().operators[name] for name in names]
    claimed = dict(configuration_rules(operators, library()))
    for name in names:
        own = {rule for rule in shipped if rule.startswith((f"{name}_along", f"{name}_of"))}
        assert own and own <= claimed.keys()
    for name, rule in shipped.items():
        found = encoding_in(rule)
        assert found is not None
        operator, encoding = found
        made = instance(operator)
        role = role_of(encoding, made)
        assert role is not None and role in configurations(made, ShardingTheorems(library())), name
    found = (encoding_in(rule) for name, rule in shipped.items() if name.startswith(("linear_along", "linear_of")))
    linear = {role_of(entry[1], instance("linear")) for entry in found if entry is not None}
    assert linear == {Along("b0"), Along("o"), Along("i"), Linearly((0,)), Linearly((1,))}
