"""Rules whose conditions force large sizes: answered by evaluating some positions, within a bound on steps."""

from __future__ import annotations

import json

import pytest

from unity_dsl.prove.answer import NotProved, Proved, Refuted
from unity_dsl.prove.normal_form.step_limit import limited, steps_left
from unity_dsl.prove.refutation.counterexample import confirmed, counterexample_table, least_sizes
from unity_dsl.prove.refutation.numeric_run import least_size
from unity_dsl.prove.rule_proof import ALL_STEPS, RUN_STEPS, prove_rule
from unity_dsl.prove.translation.rule_forms import claim_of

from ..cases import library, rule_of

IMAGE, KERNEL = "x: [n, i, h, w]", "k: [o, i, r, s]"
FALSE = {
    "pool": f"({IMAGE})\n  where h >= 64, w >= 64\n"
    "  avg_pool2d(x; size=3, stride=1) => avg_pool2d(x; size=4, stride=1)",
    "pool_of_all": f"({IMAGE})\n  where h >= 100, w >= 100, n >= 32, i >= 32\n"
    "  avg_pool2d(x; size=3, stride=1) => scale(avg_pool2d(x; size=3, stride=1); factor=2)",
    "sum": "(x: [b, c])\n  where b >= 1000, c >= 1000\n  reduce_sum(x[b, c] -> [b]) => reduce_mean(x[b, c] -> [b])",
    "one_sum": "(x: [b, c])\n  where c >= 1000\n"
    "  reduce_sum(x[b, c] -> [b]) => scale(reduce_mean(x[b, c] -> [b]); factor=1000)",
    "conv_32": f"({IMAGE}, {KERNEL}, l: [o, i, r, s])\n  where h >= 32, w >= 32, i >= 32, o >= 32, r == 3, s == 3\n"
    "  conv2d(x, k) + conv2d(x, l) => conv2d(x, k - l)",
    "conv_100": f"({IMAGE}, {KERNEL})\n  where h >= 100, w >= 100, r == 3, s == 3\n"
    "  relu(conv2d(x, k)) => conv2d(relu(x), k)",
    "matmul_100": "(x: [m, k], y: [k, n])\n  where m >= 100, k >= 100, n >= 100\n"
    "  matmul(x, y) => matmul(x, scale(y; factor=2))",
    "matmul_1000": "(x: [m, k], y: [k, n])\n  where m >= 1000, k >= 1000, n >= 1000\n"
    "  relu(matmul(x, y)) => matmul(relu(x), relu(y))",
    "softmax": "(x: [b, c])\n  where b >= 1000, c >= 1000\n  softmax(x) => softmax(scale(x; factor=2))",
    "concat": "(x: [a, n], y: [b, n])\n  where a >= 1000, b >= 1000, n >= 1000\n"
    "  concat(x, y; dim=0) => concat(y, x; dim=0)",
    "norm": "(x: [b, s, d], g: [d], h: [d])\n  where b >= 32, s >= 100, d >= 1000\n"
    "  layer_norm(x, g, h) => layer_norm(scale(x; factor=-1), g, h)",
    "view": "(x: [m, n])\n  where m >= 1000, n == m\n  x[m, n] -> [n, m] => x",
    "million": "(x: [m])\n  where m >= 1000000\n  relu(x) => x",
    "table": "(ids: int<v>[n], w: [v, d])\n  where v >= 50000, d >= 1000, n >= 100\n"
    "  embedding(ids, w) => scale(embedding(ids, w); factor=2)",
    "product_of_sizes": "(x: [b, c])\n  where b * c >= 100000\n"
    "  reduce_sum(x[b, c] -> [b]) => reduce_max(x[b, c] -> [b])",
    "number": "(x: [m, n])\n  where m >= 1000, n >= 1000, c > 0\n  relu(scale(x; factor=c)) => scale(x; factor=c)",
    "mask": "(x: [m, n])\n  where m >= 1000, n >= 1000\n  causal_mask(x) => x",
    "in_training": "(x: [m, n])\n  where m >= 1000, n >= 1000\n  dropout(x; p=0.5) => x",
    "shape": "(x: [m, n], y: [k, n])\n  where m >= 1000, n >= 1000, k >= 1000\n"
    "  concat(x, y; dim=0) => concat(concat(x, y; dim=0), y; dim=0)",
}


def rule_text(name: str, text: str) -> str:
    return f"rule {name}{text}\n"


@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_rule_of_large_sizes_is_refuted(name: str) -> None:
    """The step limit is kept; the counterexample is confirmed from what it shows, and its text is short."""
    rule = rule_of(rule_text(name, FALSE[name]))
    with limited(3 * ALL_STEPS):
        answer = prove_rule(rule, library())
        left = steps_left()
    assert left is not None and 3 * ALL_STEPS - left <= ALL_STEPS + RUN_STEPS
    assert isinstance(answer, Refuted), answer
    found = answer.counterexample
    again = confirmed(found, rule, library())
    assert again is not None and (again.left, again.position) == (found.left, found.position)
    assert len(counterexample_table(found, rule, library())) < 2_000
    if name in ("pool_of_all", "matmul_1000", "table"):
        assert len(json.dumps(found.to_json())) < 5_000


TRUE = {
    "pool": f"({IMAGE})\n  where h >= 100, w >= 100, n >= 32, i >= 32\n"
    "  avg_pool2d(scale(x; factor=2); size=3, stride=1) => scale(avg_pool2d(x; size=3, stride=1); factor=2)",
    "sum": "(x: [b, c])\n  where b >= 1000, c >= 1000\n"
    "  reduce_sum(scale(x; factor=2)[b, c] -> [b]) => scale(reduce_sum(x[b, c] -> [b]); factor=2)",
    "conv": f"({IMAGE}, {KERNEL}, l: [o, i, r, s])\n  where h >= 32, w >= 32, i >= 32, o >= 32, r == 3, s == 3\n"
    "  conv2d(x, k) + conv2d(x, l) => conv2d(x, k + l)",
    "matmul": "(x: [m, k], y: [k, n], z: [k, n])\n  where m >= 1000, k >= 1000, n >= 1000\n"
    "  matmul(x, y) + matmul(x, z) => matmul(x, y + z)",
    "softmax": "(x: [b, c])\n  where b >= 1000, c >= 1000\n  softmax(shift(x; by=1)) => softmax(x)",
    "million": "(x: [m])\n  where m >= 1000000\n  relu(relu(x)) => relu(x)",
    "concat": "(x: [a, n], y: [b, n])\n  where a >= 1000, b >= 1000, n >= 1000\n"
    "  relu(concat(x, y; dim=0)) => concat(relu(x), relu(y); dim=0)",
    "table": "(ids: int<v>[n], w: [v, d])\n  where v >= 50000, d >= 1000, n >= 100\n"
    "  embedding(ids, scale(w; factor=2)) => scale(embedding(ids, w); factor=2)",
}


@pytest.mark.parametrize("name", TRUE)
def test_a_true_rule_of_large_sizes_is_proved(name: str) -> None:
    assert isinstance(prove_rule(rule_of(rule_text(name, TRUE[name])), library()), Proved)


def test_what_a_position_cannot_tell_is_not_proved() -> None:
    """A mean over all elements of a large tensor and a tensor over devices are answered with NotProved."""
    for text in (
        "(x: [n, c], t: int<c>[n])\n  where n >= 2000, c >= 2000\n  cross_entropy(x, t) => nll(x, t)",
        "(x: [m, n])\n  where m >= 1000, n >= 1000, m == p * e\n"
        "  combine[p; dim=0](scale(partition[p; dim=0](x); factor=2)) => x",
    ):
        answer = prove_rule(rule_of(rule_text("far", text)), library())
        assert isinstance(answer, NotProved) and answer.reason


def test_the_least_sizes_are_those_of_the_conditions() -> None:
    claim = claim_of(rule_of(rule_text("r", "(x: [m, n, k])\n  where 2 * m >= 101, n > 7, n + k >= 50\n  x => x")))
    assert [least_size(claim, name) for name in ("m", "n", "k")] == [51, 8, 1]
    assert least_sizes(claim, {"m": 60, "n": 9, "k": 41}) == {"m": 51, "n": 8, "k": 1}
