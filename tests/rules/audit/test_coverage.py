"""Which rules follow from a library."""

from __future__ import annotations

from tests.prove.cases import library
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.rule_forms import calls
from unity_dsl.rules.audit.coverage import Cover, RuleLibrary, coverage
from unity_dsl.rules.audit.reading import chosen_reading
from unity_dsl.rules.audit.unity_reading import UNITY
from unity_dsl.rules.derivation.unfolding import Unfolding
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.span import Source

KNOWN = """\
rule sums_associate(x: [m, k], y: [m, k], z: [m, k])
  x + (y + z) => (x + y) + z

rule linear_adds(x: [m, k], y: [m, k], w: [o, k])
  linear(x + y, w) => linear(x, w) + linear(y, w)

rule relu_of_relu(x: [m, k])
  relu(relu(x)) => relu(x)
"""
ASKED = """\
rule exchanged(x: [m, k], y: [m, k])
  x + y => y + x

rule one_step(a: [m, k], b: [m, k], w: [o, k])
  linear(a, w) + linear(b, w) => linear(a + b, w)

rule two_steps(a: [m, k], b: [m, k], w: [o, k])
  relu(relu(linear(a, w) + linear(b, w))) => relu(linear(a + b, w))

rule another_operator(a: [m, k])
  tanh(a) * tanh(a) => square(tanh(a))

rule does_not_follow(x: [m, k])
  relu(x) * relu(x) => x * relu(x)
"""


def test_rules_are_told_by_how_they_follow() -> None:
    known = RuleLibrary.of(parse_rules(Source("known", KNOWN)).rules, library())
    asked = parse_rules(Source("asked", ASKED)).rules
    found = {one.name: one for one in coverage(asked, known)}
    assert {name: one.cover for name, one in found.items()} == {
        "exchanged": Cover.TRIVIAL,
        "one_step": Cover.INCLUDED,
        "two_steps": Cover.DERIVED,
        "another_operator": Cover.MISSED,
        "does_not_follow": Cover.MISSED,
    }
    assert found["one_step"].by == ("linear_adds",)
    assert sorted(found["two_steps"].by) == ["linear_adds", "relu_of_relu"]
    assert found["another_operator"].reason == "no rule of the library has `square`, `tanh`"
    assert found["does_not_follow"].reason == "no chain is found in 24 expansions"


def test_what_operators_of_a_format_are_defined_to_be_is_proved() -> None:
    reading = chosen_reading(UNITY, ())
    declared = reading.library()
    definitions = reading.definitions(declared)
    for one in definitions:
        assert isinstance(prove_rule(one, declared), Proved), one.name
    told = {call.name for one in definitions for call in calls(one)}
    assert {"tile_twice", "add_halves", "linear_of_first"} <= told
    Unfolding.of(definitions, declared)


def test_rules_of_defined_operators_follow_from_those_of_others() -> None:
    reading = chosen_reading(UNITY, ())
    declared = reading.library()
    text = """\
rule tiles(x: [r, n, c])
  relu(tile_twice(x; dim=1)) => tile_twice(relu(x); dim=1)

rule halves(x: [r, n, 2 * e])
  relu(add_halves(x; dim=2)) => add_halves(relu(x); dim=2)
"""
    law = """\
rule relu_of_concat(x: [a, m, b..], y: [a, n, b..])
  relu(concat(x, y; dim=1)) => concat(relu(x), relu(y); dim=1)
"""
    laws = parse_rules(Source("laws", law)).rules
    asked = parse_rules(Source("asked", text)).rules
    plain = [one.cover for one in coverage(asked, RuleLibrary.of(laws, declared))]
    defined = [one.cover for one in coverage(asked, RuleLibrary.of(laws, declared, reading.definitions(declared)))]
    assert plain == [Cover.MISSED, Cover.MISSED]
    assert defined == [Cover.INCLUDED, Cover.MISSED]
