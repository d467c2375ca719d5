"""Coverage: which rules follow from a library."""

from __future__ import annotations

from tests.prove.cases import library
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.rule_forms import calls
from unity_dsl.rules.audit.coverage import Cover, RuleLibrary, at_fixed_ranks, coverage, coverage_at_some_rank
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
    assert found["does_not_follow"].reason == "no chain is found in 2000 expansions"


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


def test_rules_with_groups_follow_from_rules_of_one_rank() -> None:
    fixed = "rule fixed(x: [m, n], y: [k, n])\n  relu(concat(x, y; dim=0)) => concat(relu(x), relu(y); dim=0)\n"
    known = RuleLibrary.of(parse_rules(Source("fixed", fixed)).rules, library())
    text = """\
rule any_rank(x: [m, g..], y: [k, g..])
  relu(concat(x, y; dim=0)) => concat(relu(x), relu(y); dim=0)

rule last_dimension(x: [g.., m], y: [g.., k])
  relu(concat(x, y; dim=-1)) => concat(relu(x), relu(y); dim=-1)
"""
    asked = parse_rules(Source("asked", text)).rules
    assert [one.cover for one in coverage(asked, known)] == [Cover.MISSED, Cover.MISSED]
    assert [one.cover for one in coverage_at_some_rank(asked, known)] == [Cover.INCLUDED, Cover.MISSED]


def test_ranks_of_a_rule() -> None:
    text = "rule two_groups(x: [b.., b_0], y: [c.., m, n])\n  relu(x), relu(y) => relu(x), relu(y)\n"
    (rule,) = parse_rules(Source("two", text)).rules
    made = at_fixed_ranks(rule)
    assert sorted(tuple(len(tensor.dims) for tensor in one.inputs) for one in made) == [
        (first, second) for first in (1, 2, 3, 4) for second in (2, 3, 4)
    ]
    for one in made:
        assert not any(dim.rest for tensor in one.inputs for dim in tensor.dims)
        for tensor in one.inputs:
            assert len({dim.size for dim in tensor.dims}) == len(tensor.dims), one


def test_operators_that_a_library_lacks_are_told() -> None:
    known = RuleLibrary.of(parse_rules(Source("known", KNOWN)).rules, library())
    asked = {rule.name: rule for rule in parse_rules(Source("asked", ASKED)).rules}
    assert known.lacking(asked["another_operator"]) == {"square", "tanh"}
    assert known.lacking(asked["two_steps"]) == frozenset()


def test_operators_of_a_rule_that_is_not_read_as_terms_are_those_that_it_calls() -> None:
    """Every call of a random operator draws its own numbers, so it is not represented as a term."""
    text = "rule rare(x: [m, k])\n  dropout(tanh(x); p=0) => tanh(dropout(x; p=0))\n"
    rules = parse_rules(Source("random", text)).rules
    known = RuleLibrary.of(parse_rules(Source("known", KNOWN)).rules, library())
    assert known.lacking(rules[0]) == {"dropout", "tanh"}
    assert RuleLibrary.of(rules, library()).lacking(rules[0]) == frozenset()


def test_a_rule_of_several_outputs_speaks_of_each() -> None:
    both = """\
rule split_of_concat(x: [m, k], y: [n, k])
  z = concat(x, y; dim=0)
  x, y => slice(z; dim=0, start=0, stop=m), slice(z; dim=0, start=m, stop=m + n)
"""
    asked = """\
rule first(x: [m, k], y: [n, k])
  relu(slice(concat(x, y; dim=0); dim=0, start=0, stop=m)) => relu(x)

rule second(x: [m, k], y: [n, k])
  slice(concat(x, y; dim=0); dim=0, start=m, stop=m + n) => y

rule out_of_nothing(x: [m, k], y: [n, k])
  x => slice(concat(x, y; dim=0); dim=0, start=0, stop=m)
"""
    known = RuleLibrary.of(parse_rules(Source("both", both)).rules, library())
    found = list(coverage(parse_rules(Source("asked", asked)).rules, known))
    assert [one.cover for one in found] == [Cover.INCLUDED, Cover.INCLUDED, Cover.MISSED]
