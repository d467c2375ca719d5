"""Rules on which the prover once had no end: each has its answer, and soon."""

from __future__ import annotations

import pytest

from unity_dsl.prove.answer import Answer, NotProved, Proved, Refuted
from unity_dsl.prove.rule_proof import prove_rule

from .cases import library, rule_of


def answer_to(text: str) -> Answer:
    return prove_rule(rule_of(text), library())


SIX = "a: [n, p], b: [n, q], c: [n, r], d: [n, s], e: [n, t], f: [n, u]"
POOL = "size=3, stride=1, pad_h=1, pad_w=1"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            f"rule softmax_of_six({SIX})\n"
            "  softmax(concat(concat(concat(concat(concat(a, b; dim=1), c; dim=1), d; dim=1), e; dim=1), f; dim=1))\n"
            "  => softmax(concat(a, concat(b, concat(c, concat(d, concat(e, f; dim=1); dim=1); dim=1);"
            " dim=1); dim=1))\n",
            Proved,
        ),
        (
            "rule norm_of_norm(x: [n, d], g: [d], b: [d])\n"
            "  layer_norm(layer_norm(x, g, b), g, b) => layer_norm(layer_norm(x, g, b), g, b)\n",
            Proved,
        ),
        (
            "rule norm_of_norm_scaled(x: [n, d], g: [d], b: [d])\n"
            "  layer_norm(layer_norm(x, g, b), g, b) => layer_norm(layer_norm(2 * x, g, b), g, b)\n",
            Refuted,
        ),
        (
            "rule pool_exchanged(x: [n, c, h, w], y: [n, c, h, w])\n"
            f"  max_pool2d(relu(x) * y; {POOL}) => max_pool2d(relu(y) * x; {POOL})\n",
            Refuted,
        ),
        (
            "rule three_norms(x: [n, d], g: [d], b: [d])\n"
            "  layer_norm(layer_norm(layer_norm(x, g, b), g, b), g, b)\n"
            "  => layer_norm(layer_norm(layer_norm(x + 1, g, b), g, b), g, b)\n",
            NotProved,
        ),
    ],
    ids=lambda part: part.split("(")[0].removeprefix("rule ") if isinstance(part, str) else part.__name__,
)
def test_what_grew_without_end(text: str, wanted: type[Answer]) -> None:
    assert isinstance(answer_to(text), wanted)
