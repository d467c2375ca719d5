"""Which rules follow from a library."""

from __future__ import annotations

from tests.prove.cases import library
from unity_dsl.rules.audit.coverage import Cover, RuleLibrary, coverage
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
