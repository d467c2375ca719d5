"""Names of rules: they describe the law, and no two rules share one."""

from __future__ import annotations

import re
from random import Random

import pytest

from unity_dsl.rules.generation.canonical_rule import canonical_rule, rule_digest
from unity_dsl.rules.generation.rule_names import rule_names, telling_name
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

from ...prove.cases import library, rules_of, shipped_rules


def rules(text: str) -> tuple[RuleDecl, ...]:
    return parse_rules(Source("laws.rules", text)).rules


@pytest.mark.parametrize(
    ("inputs", "law", "name"),
    [
        ("x: [m, n], y: [m, n]", "x + y => y + x", "add_commutes"),
        ("x: [m, k], y: [k, n], z: [n, l]", "matmul(matmul(x, y), z) => matmul(x, matmul(y, z))", "matmul_associates"),
        ("x: [m, n]", "relu(relu(x)) => relu(x)", "relu_idempotent"),
        ("x: [m, n]", "scale(scale(x; factor=c); factor=d) => scale(x; factor=c * d)", "scale_composes"),
        ("x: [m, n]", "relu(softmax(x)) => softmax(x)", "relu_absorbed_by_softmax"),
        ("x: [m, n]", "relu(x[m, n] -> [n, m]) => relu(x)[m, n] -> [n, m]", "relu_commutes_with_transpose"),
        ("x: [m, k], w: [n, k]", "linear(x, scale(w; factor=c)) => scale(linear(x, w); factor=c)",
         "linear_commutes_with_scale_in_w"),
        ("x: [m, k], w: [n, k]", "linear(scale(x; factor=c), w) => linear(x, scale(w; factor=c))",
         "scale_moves_across_linear"),
        ("x: [m, n], y: [k, n]", "relu(concat(x, y; dim=0)) => concat(relu(x), relu(y); dim=0)",
         "relu_distributes_over_concat_first"),
        ("x: [m, a], y: [m, b]", "concat(relu(x), relu(y); dim=-1) => relu(concat(x, y; dim=-1))",
         "relu_factors_out_of_concat_last"),
        ("x: [m, k], y: [n, k], w: [o, k]",
         "linear(x, w), linear(y, w) => slice(linear(concat(x, y; dim=0), w); dim=0, start=0, stop=m), "
         "slice(linear(concat(x, y; dim=0), w); dim=0, start=m, stop=m + n)", "linear_joined_by_concat_first"),
        ("x: [m, n]", "(x[m, n] -> [n, m])[n, m] -> [m, n] => x", "transpose_of_transpose_undone"),
        ("x: [m, a], y: [m, b]", "slice(concat(x, y; dim=1); dim=1, start=a, stop=a + b) => y",
         "slice_axis1_tail_of_concat_axis1_undone"),
        ("x: [m, k], w: [n, k]", "linear(x, w) => matmul(x, w[n, k] -> [k, n])", "linear_as_matmul_of_transpose"),
        ("x: [h * k, n]", "relu(x[(h k), n] -> [h, k, n]) => relu(x)[(h k), n] -> [h, k, n]",
         "relu_commutes_with_split_0"),
        ("x: [b, m, n]", "relu(x[b, m, n] -> [m, b, n]) => relu(x)[b, m, n] -> [m, b, n]",
         "relu_commutes_with_transpose_01"),
        ("x: [m, n]", "reduce_sum((x[m, n] -> [n, m])[n, m] -> [m]) => reduce_sum(x[m, n] -> [m])",
         "reduce_sum_first_of_transpose_into_reduce_sum_last"),
        ("x: [p * m, n]", "relu(partition[p; dim=0](x)) => partition[p; dim=0](relu(x))",
         "relu_commutes_with_partition_first"),
    ],
)  # fmt: skip
def test_a_name_tells_operators_their_axes_and_the_kind_of_law(inputs: str, law: str, name: str) -> None:
    (one,) = rules(f"rule law({inputs})\n  {law}\n")
    assert telling_name(canonical_rule(one, library()), library()) == name


ALIKE = """\
rule a(x: [m, n], y: [n])
  exp(x) * exp(y) => exp(x + y)

rule b(x: [m, n], y: [m, n])
  exp(x) * exp(y) => exp(x + y)

rule c(x: [m, n], y: [m, n])
  relu(exp(x) * y) => exp(x) * relu(y)

rule d(x: [m, n])
  relu(exp(x) * x) => exp(x) * relu(x)

rule e(x: [m, n], y: [m, n], z: [m, n])
  relu(x) + (y + z) => y + (z + relu(x))

rule f(x: [m, n], y: [m, n], z: [m, n])
  relu(x) + (y + z) => z + (y + relu(x))
"""


def test_alike_rules_are_told_apart_by_ranks_by_inputs_and_last_by_numbers() -> None:
    found = dict(zip("abcdef", rule_names(rules(ALIKE), (), library()), strict=True))
    assert found["a"] == f"{found['b']}_broadcast_y"
    assert found["d"] == f"{found['c']}_same_x"
    assert {found["e"], found["f"]} == {f"{found['e'][:-2]}_1", f"{found['e'][:-2]}_2"}


def test_all_names_differ_whatever_the_order_and_tell_no_hash() -> None:
    distinct = list({rule_digest(one, library()): one for one in (*rules_of("proved"), *shipped_rules())}.values())
    names = rule_names(distinct, (), library())
    assert len(names) == len(set(names)) > 200
    order = Random(7).sample(range(len(distinct)), len(distinct))
    assert rule_names([distinct[place] for place in order], (), library()) == [names[place] for place in order]
    assert not [name for name in names if re.search(r"_(?=[a-f]*[0-9])[0-9a-f]{6}$", name)]


def test_a_name_that_is_taken_is_not_given_again() -> None:
    (law,) = rules("rule a(x: [m, n])\n  relu(relu(x)) => relu(x)\n")
    (name,) = rule_names([law], {"relu_idempotent"}, library())
    assert name.startswith("relu_idempotent_")
    assert rule_names([law], {"relu_idempotent", name}, library()) not in ([name], ["relu_idempotent"])
