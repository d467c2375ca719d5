"""Every rule that is proved agrees in exact numbers, from the declarations alone; sizes of 1 among them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from unity_dsl.syntax.parse_rules import RuleDecl

from .cases import library, rule_of, rules_of, shipped_rules
from .exact import Checked, NoMeaning, check, check_at
from .exact_numbers import exponential, logarithm, over, root, same, times
from .test_cases import UNSHOWN

INSTANCES = 20
SEED = 1000
"""Instances that no other test draws."""


@pytest.mark.parametrize("rule", [*rules_of("proved"), *shipped_rules()], ids=lambda rule: rule.name)
def test_what_is_proved_agrees_in_exact_numbers(rule: RuleDecl) -> None:
    checked = check(rule, library(), INSTANCES, SEED)
    assert checked == Checked(INSTANCES), f"seed {SEED}: {checked}"


@pytest.mark.parametrize(
    "rule", [rule for rule in rules_of("refuted") if rule.name not in UNSHOWN], ids=lambda rule: rule.name
)
def test_the_checker_finds_out_wrong_rules(rule: RuleDecl) -> None:
    checked = check(rule, library(), INSTANCES, SEED)
    assert checked.found is not None, f"seed {SEED}: {checked}"
    assert not same(checked.found.left, checked.found.right) or checked.found.position == ()
    assert check_at(rule, library(), checked.found.sizes) is not None


def test_sizes_are_those_that_are_asked_for() -> None:
    rule = rule_of("rule f(x: [m, k]) where m == p * e\n  x => 2 * x\n")
    found = check_at(rule, library(), {"p": 2, "e": 3, "k": 1})
    assert found is not None and dict(found.sizes) == {"p": 2, "e": 3, "k": 1, "m": 6}
    assert found.right == 2 * found.left  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    [
        "rule f(x: [m], y: [k])\n  x + y => y + x\n",
        "rule f(x: [m])\n  partition[p; dim=0](x) => partition[p; dim=0](x)\n",
        "rule f(x: [p * n], y: [n])\n  partition[p; dim=0](x) + y => y + partition[p; dim=0](x)\n",
        "rule f(x: [m])\n  slice(x; dim=0, start=k / 2, stop=k / 2 + 1) => x\n",
        "rule f(x: [a * b])\n  x[(a b c)] -> [a, b, c] => x\n",
    ],
    ids=["sizes", "degree", "layout", "position", "factors"],
)
def test_a_rule_without_a_meaning_is_not_checked(text: str) -> None:
    assert check(rule_of(text), library(), 5).meaningless is not None
    with pytest.raises(NoMeaning):
        check_at(rule_of(text), library(), dict.fromkeys("mnkpabc", 3) | {"m": 4})


def test_ranks_beyond_those_of_a_proof_are_drawn() -> None:
    rule = next(rule for rule in rules_of("refuted") if rule.name == "fourth_dimension_by_default")
    found = check(rule, library(), INSTANCES, SEED).found
    assert found is not None and "g.2" in found.sizes


def test_what_has_no_value_is_not_compared() -> None:
    assert check(rule_of("rule f(x: [m], y: [m])\n  (x * y) / y => x\n"), library(), 10) == Checked(10)
    assert over(Fraction(1), Fraction(0)) is None and logarithm(Fraction(0)) is None and root(Fraction(-1)) is None
    assert times(Fraction(0), float("inf")) is None and exponential(-float("inf")) == 0


def test_numbers_are_exact_where_they_can_be() -> None:
    assert root(Fraction(9, 4)) == Fraction(3, 2)
    assert exponential(Fraction(0)) == 1 and isinstance(exponential(Fraction(0)), Fraction)
    assert same(times(root(Fraction(2)), root(Fraction(2))), Fraction(2))
    assert not same(exponential(Fraction(1, 3)), exponential(Fraction(10**35 + 3, 3 * 10**35)))
