"""Rules on which the prover once did not terminate: each gets its answer soon."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.sampling import of_the_day
from unity_dsl.prove.answer import Answer, NotProved, Proved, Refuted
from unity_dsl.prove.conditional import conditional_equality
from unity_dsl.prove.normal_form.step_limit import OutOfSteps, limited, spend, steps_left
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.rules.wellformed import read_rules
from unity_dsl.syntax.span import Source

from .cases import answer_to, library, rule_of, rules_of


def proof_of(text: str) -> Answer:
    return prove_rule(rule_of(text), library())


SIX = "a: [n, p], b: [n, q], c: [n, r], d: [n, s], e: [n, t], f: [n, u]"
POOL = "size=3, stride=1, pad_h=1, pad_w=1"


GROWN: list[tuple[str, type[Answer]]] = [
    (
        f"rule softmax_of_six({SIX})\n"
        "  softmax(concat(concat(concat(concat(concat(a, b; dim=1), c; dim=1), d; dim=1), e; dim=1), f; dim=1))\n"
        "  => softmax(concat(a, concat(b, concat(c, concat(d, concat(e, f; dim=1); dim=1); dim=1);"
        " dim=1); dim=1))\n",
        Proved,
    ),
    (
        f"rule softmax_of_six_shifted({SIX})\n"
        "  softmax(concat(concat(concat(concat(concat(a, b; dim=1), c; dim=1), d; dim=1), e; dim=1), f; dim=1))\n"
        "  => softmax(concat(concat(concat(concat(concat(a + 1, b + 1; dim=1), c + 1; dim=1), d + 1; dim=1),"
        " e + 1; dim=1), f + 1; dim=1))\n",
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
]


@pytest.mark.parametrize(
    ("text", "wanted"),
    of_the_day(GROWN, 3),
    ids=lambda part: part.split("(")[0].removeprefix("rule ") if isinstance(part, str) else part.__name__,
)
def test_what_grew_without_end(text: str, wanted: type[Answer]) -> None:
    assert isinstance(proof_of(text), wanted)


# ---------------------------------------------------------------------------------------------- steps


def test_an_inner_limit_is_no_wider_than_what_is_left_outside() -> None:
    with limited(10):
        spend(4)
        with limited(100):
            assert steps_left() == 6
            spend(5)
        assert steps_left() == 1
        with pytest.raises(OutOfSteps), limited(3):
            spend(2)
        assert steps_left() == 0
    assert steps_left() is None
    spend(10**9)


def test_a_proof_that_is_given_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "rule f(x: [n, d])\n  softmax(2 * x) => softmax(x + x)\n"
    assert isinstance(proof_of(text), Proved)
    monkeypatch.setattr("unity_dsl.prove.rule_proof.PROOF_STEPS", 20)
    given_up = proof_of(text)
    assert isinstance(given_up, NotProved)
    assert given_up.reason == "given up after the 20 steps that it may take"


def test_cases_of_signs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = (rule for rule in rules_of("proved") if rule.name == "relu_as_a_step")
    assert conditional_equality.MAX_LEAVES == 32 and isinstance(prove_rule(rule, library()), Proved)
    monkeypatch.setattr(conditional_equality, "MAX_LEAVES", 1)
    given_up = prove_rule(rule, library())
    assert isinstance(given_up, NotProved) and "more than 1 cases of signs" in given_up.reason


# ---------------------------------------------------------------------------------------------- words

INTERNAL = re.compile(r"~\d|\w#\d|index_\d|place_\d|\bfn |Poly\(|Fraction\(|Var\(|object at|\w'(?=[ ,)])")
ODD = """\
rule beyond(x: [m, n]) where m >= 3
  slice(x; dim=0, start=0, stop=2) => slice(x; dim=0, start=n, stop=n + 2)

rule half(x: [m, n])
  slice(x; dim=0, start=0, stop=1) => slice(x; dim=0, start=m / 2, stop=m / 2 + 1)

rule ids_beyond(ids: int<v>[n], w: [u, d])
  embedding(ids, w) => embedding(ids, w)

rule flat(x: [m, n, k])
  (x[a, b, c] -> [(a b), c])[(a b), c] -> [(b a), c] => x[a, b, c] -> [(b a), c]

rule whole_dimension(x: [m, n])
  concat(x, x; dim=1)[a, (b c)] -> [a, b, c] => concat(x, x; dim=1)[a, (b c)] -> [a, b, c]

rule places(x: [b, s, d])
  causal_mask(x) => x

rule largest(x: [b, c]) where c >= 2
  top_k(x; count=2) => top_k(relu(x); count=2)

rule windows(x: [n, c, h, w], k: [o, c, r, s])
  conv2d(x, k; stride=2, pad=1) => conv2d(x, k; stride=1, pad=0)

rule powers(x: [m])
  x * x * x * x * x * x * x * x * x => x * x * x * x * x * x * x * x * (x + x - x) * (x / x)
"""


def reasons() -> Iterator[str]:
    rules, _ = read_rules(Source("odd.rules", ODD), library())
    answers = [prove_rule(rule, library(), numbers=False) for rule in rules]
    answers += [answer_to(rule, numbers=False) for rule in rules_of("refuted")]
    for answer in answers:
        if isinstance(answer, NotProved):
            yield answer.reason


def test_reasons_are_in_words_of_the_user() -> None:
    found = list(reasons())
    assert len(found) > 30
    assert [reason for reason in found if INTERNAL.search(reason)] == []
