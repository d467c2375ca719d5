"""Reported counterexamples: small, simple, and confirmed again from the reported data alone."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite

import numpy as np
import pytest

from unity_dsl.prove.answer import Answer, NotProved, Refuted
from unity_dsl.prove.refutation.counterexample import SEEDS, confirmed, counterexample_table, number_text, smaller_sizes
from unity_dsl.prove.refutation.numeric_run import Difference, IllShaped, Run, witness_sizes
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.real_attributes import real_names, with_reals
from unity_dsl.prove.translation.rule_forms import claim_of, used_names, views_at
from unity_dsl.syntax.parse_rules import RuleDecl

from ..cases import answer_to, library, rule_of, rules_of
from ..test_cases import UNSHOWN

WRONG = [rule for rule in rules_of("refuted") if rule.name not in UNSHOWN]


LARGER = (
    "dropout_in_another_order",
    "tall_image_with_a_halo_too_small",
    "too_few_zeros_between",
    "images_side_by_side_off_by_one",
    "mean_of_means_side_by_side",
)
"""Wrong rules whose sides agree at the smallest sizes, where nothing is dropped, or whose conditions exclude these."""
FALLING = ("greatest_of_silu",)
"""Wrong rules whose sides agree where a function increases: silu does from -1.28 on."""


def refuted(rule: RuleDecl) -> Difference:
    """The counterexample to a wrong rule of tests/cases."""
    return difference(answer_to(rule))


def difference(answer: Answer) -> Difference:
    assert isinstance(answer, Refuted), answer
    return answer.counterexample


def refutation_of(text: str) -> tuple[Difference, RuleDecl]:
    rule = rule_of(text)
    return difference(prove_rule(rule, library())), rule


def table(text: str) -> str:
    return counterexample_table(*refutation_of(text), library())


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.name)
def test_a_counterexample_is_confirmed_from_what_it_shows(rule: RuleDecl) -> None:
    found = refuted(rule)
    assert repr(confirmed(found, rule, library())) == repr(found)  # as text: a NaN may come from another process
    reals = real_names(rule, library())
    assert [given.name for given in found.inputs if given.name not in reals] == [one.name for one in rule.inputs]
    assert claim_of(with_reals(rule, library())[0]).holds(found.sizes) and all(
        size >= 1 for size in found.sizes.values()
    )


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.name)
def test_inputs_are_few_whole_numbers(rule: RuleDecl) -> None:
    found = refuted(rule)
    assert sum(found.sizes.values()) <= len(found.sizes) + 3 or rule.name in LARGER
    reals = real_names(rule, library())
    values = [value for given in found.inputs if given.name not in reals for value in given.values]
    assert set(values) <= {0.0, 1.0, -1.0} | ({-2.0} if rule.name in FALLING else set())
    assert sum(map(abs, values)) <= 4


@pytest.mark.parametrize("rule", WRONG[::3], ids=lambda rule: rule.name)
def test_no_smaller_sizes_differ_on_the_same_draws(rule: RuleDecl) -> None:
    own, declared = with_reals(rule, library())
    found, claim = refuted(rule), claim_of(own)
    witness = witness_sizes(claim, used_names(own, claim, found.ranks), 0)
    assert witness is not None
    views = views_at(own, claim, declared, found.ranks, witness)
    for sizes in smaller_sizes(found.sizes):
        run = Run(own, claim, declared, found.ranks, views, sizes)
        if not claim.holds(sizes):
            continue
        for seed in SEEDS:
            try:
                assert run.difference(seed) is None, sizes
            except IllShaped:
                break


def test_sizes_of_a_smaller_sum_come_in_order_and_each_once() -> None:
    found = list(smaller_sizes({"m": 2, "k": 3}))
    assert [(sizes["m"], sizes["k"]) for sizes in found] == [(1, 1), (2, 1), (1, 2), (3, 1), (2, 2), (1, 3)]
    assert list(smaller_sizes({"m": 1})) == []


def test_values_are_those_of_the_inputs() -> None:
    """Both sides are computed here from the JSON alone."""
    (relu,) = (rule for rule in WRONG if rule.name == "relu_over_a_sum")
    told = json.loads(json.dumps(refuted(relu).to_json(), allow_nan=False))
    x, y = (np.array(given["values"]) for given in told["inputs"])
    place = tuple(told["index"])
    assert told["left"] == np.maximum(x + y, 0)[place] != told["right"]
    assert told["right"] == (np.maximum(x, 0) + np.maximum(y, 0))[place]
    (mean,) = (rule for rule in WRONG if rule.name == "unequal_parts_assumed_equal")
    told = json.loads(json.dumps(refuted(mean).to_json(), allow_nan=False))
    x, y = (np.array(given["values"]) for given in told["inputs"])
    assert x.shape == (told["sizes"]["m"], told["sizes"]["k"])
    place = tuple(told["index"])
    assert told["left"] == pytest.approx(np.concatenate([x, y], 1).mean(1)[place])
    assert told["right"] == pytest.approx((0.5 * (x.mean(1) + y.mean(1)))[place])


def test_a_lost_value_is_told() -> None:
    found, rule = refutation_of("rule f(x: [m])\n  x => (x / x) * x\n")
    assert found == confirmed(found, rule, library()) and found.to_json()["right"] == "nan"
    assert counterexample_table(found, rule, library()) == (
        "sizes             m = 1\nx                 [0]\noutput[0], left   0\noutput[0], right  no value\n"
    )


def test_what_is_wrong_outside_training_says_so() -> None:
    (rule,) = (rule for rule in WRONG if rule.name == "only_in_training")
    found = refuted(rule)
    assert found.evaluation and found.to_json()["evaluation"] is True
    assert counterexample_table(found, rule, library()) == (
        "sizes             m = 1\n"
        "mode              outside training\n"
        "x                 [1]\n"
        "output[0], left   2\n"
        "output[0], right  1\n"
    )
    assert confirmed(replace(found, evaluation=False), rule, library()) is None


def test_numbers_that_are_not_finite_are_texts_in_json() -> None:
    (rule,) = (rule for rule in WRONG if rule.name == "causal_mask_by_positions")
    told = json.loads(json.dumps(refuted(rule).to_json(), allow_nan=False))
    assert told["right"] == "-inf" and told["left"] == 0
    assert set(told) == {"sizes", "ranks", "inputs", "output", "index", "left", "right"}


# ---------------------------------------------------------------------------------------------- tables


def test_a_table_of_a_small_counterexample() -> None:
    assert table("rule f(x: [m, k], y: [m, k])\n  where m == 2 * p\n  relu(x + y) => relu(x) + relu(y)\n") == (
        "sizes                p = 1, k = 1, m = 2\n"
        "x                    [[1], [0]]\n"
        "y                    [[-1], [0]]\n"
        "output[0, 0], left   0\n"
        "output[0, 0], right  1\n"
    )


def test_a_table_of_a_scalar_result_and_integers() -> None:
    text = "rule f(t: int<v>[n], w: [v, d])\n  sum_all(embedding(t, w)) => sum_all(w)\n"
    assert table(text) == (
        "sizes          n = 2, v = 1, d = 1\n"
        "t              [0, 0]\n"
        "w              [[1]]\n"
        "output, left   2\n"
        "output, right  1\n"
    )


def test_a_table_of_other_shapes() -> None:
    text = "rule f(x: [m, n])\n  where m == n + 1\n  x[i, j] -> [j, i] => x\n"
    assert table(text) == (
        "sizes          n = 1, m = 2\n"
        "x              [[0], [0]]\n"
        "output, left   of shape [1, 2]\n"
        "output, right  of shape [2, 1]\n"
    )
    shapes = refutation_of(text)[0].to_json()["shapes"]
    assert shapes == {"left": [1, 2], "right": [2, 1]}


def test_a_table_of_a_large_input_shows_what_is_not_zero() -> None:
    assert table("rule f(x: [m, k])\n  where m >= 4, k >= 5\n  relu(x) => x\n") == (
        "sizes                m = 4, k = 5\n"
        "x                    of shape [4, 5]: [3, 3] = -1, else 0\n"
        "output[3, 3], left   0\n"
        "output[3, 3], right  -1\n"
    )


def test_a_table_names_device_axes_and_the_output() -> None:
    text = "rule f(x: [@p, m])\n  x, reduce[p](x) => x, relu(reduce[p](x))\n"
    assert table(text) == (
        "sizes               m = 1, p = 1\nx over @p           [[-1]]\noutput 1[0], left   -1\noutput 1[0], right  0\n"
    )


def test_a_table_of_what_does_not_differ_is_refused() -> None:
    found, rule = refutation_of("rule f(x: [m, k])\n  relu(x) => x\n")
    positive = replace(found, inputs=tuple(replace(given, values=(1.0,)) for given in found.inputs))
    assert confirmed(positive, rule, library()) is None
    with pytest.raises(ValueError, match="do not differ"):
        counterexample_table(positive, rule, library())


def test_numbers_are_short() -> None:
    told = [number_text(value) for value in (0.0, -2.0, 1 / 3, 1e20, float("inf"), -1.5e-9)]
    assert told == ["0", "-2", "0.33333333", "1e+20", "inf", "-1.5e-09"]


# ---------------------------------------------------------------------------------------------- what counts


def test_where_the_left_side_has_no_value_nothing_is_refuted() -> None:
    """0 / 0 on the left is allowed, as a rule claims only the left side's values. On the right it is refuted."""
    answer = prove_rule(rule_of("rule f(x: [m])\n  (x / x) * x => x\n"), library())
    assert not isinstance(answer, Refuted)
    assert isinstance(prove_rule(rule_of("rule f(x: [m])\n  x => (x / x) * x\n"), library()), Refuted)


def test_rest_groups_are_part_of_a_counterexample() -> None:
    found, rule = refutation_of("rule f(x: [b.., k])\n  softmax(x) => relu(softmax(2 * x))\n")
    assert set(found.ranks) == {"b"} and set(found.sizes) == {"k", *(f"b.{n}" for n in range(found.ranks["b"]))}
    assert confirmed(found, rule, library()) == found


def test_not_proved_where_sides_are_not_compared() -> None:
    answer = prove_rule(rule_of("rule f(x: [@p, m], y: [@q, m])\n  where p == q\n  x => y\n"), library())
    assert isinstance(answer, NotProved) and answer.obligation == "same_layout"


def test_logs_of_zero_are_no_counterexample_where_an_operator_names_infinity() -> None:
    """A rule with max(m) log(w[m]) is refuted at inputs where both sides have finite values."""
    (rule,) = (rule for rule in WRONG if rule.name == "log_is_taken_away_from")
    found = refuted(rule)
    (weights,) = (given.values for given in found.inputs if given.name == "w")
    assert all(value > 0 for value in weights) and isfinite(found.left) and isfinite(found.right)
