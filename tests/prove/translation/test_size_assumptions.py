"""Assumptions about sizes that follow from a rule's conditions."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from unity_dsl.prove.answer import NotProved, Proved, Refuted
from unity_dsl.prove.normal_form.form import Unsupported
from unity_dsl.prove.normal_form.polynomial import of
from unity_dsl.prove.refutation.numeric_run import witness_sizes
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.rule_forms import attribute_names, claim_of, used_names

from ..cases import library, rule_of


def answer(text: str) -> Proved | Refuted | NotProved:
    return prove_rule(rule_of(text), library())


def test_a_size_that_a_degree_divides_has_the_degree_as_its_major_factor() -> None:
    claim = claim_of(rule_of("rule f(x: [m])\n  where m % p == 0\n  x => x\n"))
    assert claim.names == {"m": (of("p"), of("(m/p)"))} and claim.conditions == ()
    assert claim.written({"p": 3, "(m/p)": 2}) == {"p": 3, "m": 6}


def test_a_size_with_a_remainder_is_that_more_than_a_multiple() -> None:
    """The claim covers exactly these sizes, the remainder itself included."""
    claim = claim_of(rule_of("rule f(x: [m])\n  where m % 5 == 2\n  x => x\n"))
    (symbol,) = claim.names["m"][0].symbols()
    found = [claim.written({str(symbol): count})["m"] for count in range(1, 5)]
    assert found == [2, 7, 12, 17]


@pytest.mark.parametrize("where", ["m % 2 == 1", "m % 3 == 2", "1 == m % 2, m >= 3"])
def test_a_rule_that_holds_for_every_size_is_proved_for_remainders(where: str) -> None:
    call = "concat(slice(x; dim=0, start=0, stop=m // 2), slice(x; dim=0, start=m // 2, stop=m); dim=0)"
    assert isinstance(answer(f"rule f(x: [m])\n  where {where}, m >= 2\n  {call} => x\n"), Proved)


@pytest.mark.parametrize(("where", "holds"), [("m % 2 == 1", True), ("m % 2 == 0", False), ("m % 4 == 3", True)])
def test_a_remainder_decides(where: str, holds: bool) -> None:
    """Windows of size two leave out the last position of an odd size."""
    pool = "avg_pool2d({}; size=2, stride=2)"
    left, right = pool.format("slice(x; dim=2, start=0, stop=m - 1)"), pool.format("x")
    text = f"rule f(x: [n, c, m, 8])\n  where {where}, m >= 3\n  {left} => {right}\n"
    assert isinstance(answer(text), Proved) is holds


@pytest.mark.parametrize("where", ["m % p == 0", "0 == m % p", "m % p == 0, m % p == 0", "m % (p * 1) == 0"])
def test_a_rule_of_parts_is_proved_where_they_divide(where: str) -> None:
    text = f"rule f(x: [m, n])\n  where {where}\n  combine[p; dim=0](partition[p; dim=0](x)) => x\n"
    assert isinstance(answer(text), Proved)


@pytest.mark.parametrize("where", ["p % m == 0", "m % q == 0", "m <= p", "m % 2 == 0"])
def test_another_condition_is_not_enough(where: str) -> None:
    text = f"rule f(x: [m, n])\n  where {where}\n  combine[p; dim=0](partition[p; dim=0](x)) => x\n"
    assert isinstance(answer(text), NotProved)


def test_what_divides_a_divisor_divides() -> None:
    text = "rule f(x: [m])\n  where m % p == 0, p % q == 0\n  combine[q; dim=0](partition[q; dim=0](x)) => x\n"
    assert isinstance(answer(text), Proved)


def test_two_divisors_are_not_their_product() -> None:
    """4 and 6 divide 12, but 24 does not."""
    text = "rule f(x: [m])\n  where m % p == 0, m % q == 0\n  {} => x\n"
    both = "combine[p; dim=0](combine[q; dim=0](partition[q; dim=0](partition[p; dim=0](x))))"
    assert not isinstance(answer(text.format(both)), Proved)


def test_witnesses_meet_divisibility() -> None:
    rule = rule_of("rule f(x: [p * e], y: [m])\n  where (p * e) % q == 0, m % e == 0, m >= 3\n  x => x\n")
    claim = claim_of(rule)
    found = [witness_sizes(claim, used_names(rule, claim, {}), seed) for seed in range(5)]
    for sizes in found:
        assert sizes is not None
        written = claim.written(sizes)
        assert (written["p"] * written["e"]) % written["q"] == 0 and written["m"] % written["e"] == 0


def test_the_order_of_conditions_does_not_matter() -> None:
    conditions = ["m >= 4", "m == p * k", "k == 2 * e", "n == m", "l % e == 0"]
    sides = set()
    for order in permutations(conditions):
        rule = rule_of(f"rule f(x: [m], y: [n], z: [l])\n  where {', '.join(order)}\n  x + y => y + x\n")
        claim = claim_of(rule)
        names = used_names(rule, claim, {})
        held = 0
        for values in product((1, 2, 3), repeat=len(names)):
            sizes = dict(zip(names, values, strict=True))
            written = claim.written(sizes)
            if claim.holds(sizes):
                held += 1
                assert written["m"] == written["n"] == written["p"] * written["k"] >= 4
                assert written["k"] == 2 * written["e"] and written["l"] % written["e"] == 0
        sides.add((len(names), held))
    assert len(sides) == 1 and next(iter(sides))[1] > 20


def test_a_size_that_is_its_own_condition_stays_an_assumption() -> None:
    claim = claim_of(rule_of("rule f(x: [m], y: [n])\n  where m == n, n == m, m == m\n  x => x\n"))
    assert set(claim.names) == {"m"} and claim.holds({"n": 2})


def test_quotients_rounded_down_are_sizes() -> None:
    text = "rule f(x: [m])\n  where m == k // 2\n  relu(relu(x)) => relu(x)\n"
    assert isinstance(answer(text), Proved)
    assert isinstance(answer(text.replace("=> relu(x)", "=> x")), Refuted)


def test_a_device_axis_of_several_factors_is_refused() -> None:
    """Except for a multiple, which is a single factor where the claim is not divided: there a wrong rule is refuted."""
    product = "rule f(x: [@p, m])\n  where p == a * b\n  reduce[p](x) => reduce[p](x)\n"
    multiple = "rule f(x: [m])\n  where p % q == 0\n  reduce[p](replicate[p](x)) => x\n"
    for text in (product, multiple):
        with pytest.raises(Unsupported):
            claim_of(rule_of(text))
    assert isinstance(answer(product), NotProved) and isinstance(answer(multiple), Refuted)


def test_a_device_axis_of_one_device_is_none() -> None:
    text = "rule f(x: [b, p * c], y: [@p, d]){}\n  softmax(x), reduce[p](y) => {}\n"
    right = "combine[p; dim=1](softmax(partition[p; dim=1](x))), unreplicate[p](y)"
    assert isinstance(answer(text.format("\n  where p == 1", right)), Proved)
    assert isinstance(answer(text.format("", right)), Refuted)


def test_no_device_axis_has_no_device() -> None:
    found = answer("rule f(x: [m])\n  where a == 0\n  reduce[a](replicate[a](x)) => 0 * x\n")
    assert isinstance(found, NotProved) and found.obligation == "inhabited"


def test_an_attribute_may_be_zero() -> None:
    assert isinstance(answer("rule f(x: [m])\n  where a == 0\n  shift(x; by=a) => x\n"), Proved)
    assert isinstance(answer("rule f(x: [m])\n  where a == 0\n  scale(x; factor=a) => x\n"), Refuted)


def test_which_names_are_attributes_only() -> None:
    sides = "shift(scale(x; factor=a); by=m) => reduce[p](replicate[p](x))"
    rule = rule_of(f"rule f(x: [m], t: int<v>[n])\n  {sides}\n")
    claim = claim_of(rule)
    assert set(used_names(rule, claim, {})) == {"m", "v", "n", "a", "p"}
    assert attribute_names(rule, claim, {}) == {"a"}


@pytest.mark.parametrize(
    ("size", "sides"),
    [
        ("m, n, k", "concat(x, x; dim=a) => concat(x, x; dim=2)"),
        ("p * m, p * n, p * k", "partition[p; dim=a](x) => partition[p; dim=2](x)"),
    ],
)
def test_a_dimension_given_by_a_name_is_not_proved_for_the_witness_alone(size: str, sides: str) -> None:
    """Every witness of `a <= 2` has a = 2, but at a = 1 the two dimensions differ."""
    text = f"rule f(x: [{size}])\n  where {{}}\n  {sides}\n"
    assert isinstance(answer(text.format("a <= 2")), Refuted)
    assert isinstance(answer(text.format("a == 2")), Proved)


def test_a_size_of_one_at_the_witness_does_not_broadcast_for_all_sizes() -> None:
    text = "rule f(x: [a - b, k], y: [c, k])\n  where a > b, a < b + 4\n  x + y => y + x\n"
    assert isinstance(answer(text), NotProved)


def test_equal_products_of_four_names_have_all_their_solutions_and_no_others() -> None:
    """Euler's four number theorem, by brute force: a b = c d iff a, b, c, d are products of four numbers in pairs."""
    rule = rule_of("rule f(x: [a, b], y: [c, d])\n  where a * b == c * d\n  x, y => x, y\n")
    claim = claim_of(rule)
    assert claim.conditions == () and set(claim.names) == set("abcd")
    names = used_names(rule, claim, {})
    found = {
        tuple(claim.written(dict(zip(names, values, strict=True)))[name] for name in "abcd")
        for values in product(range(1, 7), repeat=4)
    }
    expected = {values for values in product(range(1, 7), repeat=4) if values[0] * values[1] == values[2] * values[3]}
    assert expected <= found
    assert all(a * b == c * d for a, b, c, d in found)


def test_what_two_products_share_cancels() -> None:
    claim = claim_of(rule_of("rule f(x: [a, c], y: [b, c])\n  where a * c == c * b\n  x, y => x, y\n"))
    assert claim.conditions == () and claim.names == {"a": (of("b"),)}
