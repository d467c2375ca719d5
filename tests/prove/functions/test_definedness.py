"""The obligation `defined`: the right side has a value wherever the left side has one."""

from __future__ import annotations

import pytest

from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.library import Library
from unity_dsl.prove import rule_proof as prove
from unity_dsl.prove.answer import NotProved, Proved, Refuted
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.syntax.span import Source

from ..cases import library as every_operator
from ..cases import rule_of

OPERATORS = """\
op over(x: [b..], y: [b..]) -> z: [b..]
  z[b..] = select(y[b..] > 0, x[b..] / y[b..], 0)

op over_negative(x: [b..], y: [b..]) -> z: [b..]
  z[b..] = select(y[b..] > 0, 0, x[b..] / y[b..])

op steps(x: [b..]) -> y: [b..]
  y[b..] = [1 / x[b..] > 1]

op first(x: [n], k: [n]) -> y: [n]
  y[n] = x[0] + k[n]

op total(x: [n]) -> y: []
  y[] = sum(n) x[n]
"""
SHIFTED = "reciprocal(shift(x; by=0.3))"


@pytest.fixture(scope="module")
def library() -> Library:
    return library_of([*library_sources(), Source("mine.uop", OPERATORS)])


KEPT = [
    "(x: [m])\n  x / x => x / x",
    "(x: [m])\n  log(x) - log(x) => x - x",
    "(x: [m])\n  x => log(exp(x))",
    "(x: [m])\n  x => x + sqrt(x * x) - sqrt(x * x)",
    "(x: [m], y: [k])\n  reciprocal(concat(x, y; dim=0)) => concat(reciprocal(x), reciprocal(y); dim=0)",
    "(x: [m], y: [k])\n  concat(log(x), log(y); dim=0) => log(concat(x, y; dim=0))",
    "(x: [m], y: [m], z: [m])\n  z / (x * y) => (z / x) / y",
    "(x: [m], y: [m], z: [m])\n  (z / x) / y => z / (x * y)",
    "(x: [m])\n  sqrt(x) + log(sqrt(x)) => log(sqrt(x)) + sqrt(x)",
    "(x: [m, n])\n  log(x)[i, j] -> [j, i] => log(x[i, j] -> [j, i])",
    "(x: [p * m])\n  log(x) => combine[p; dim=0](log(partition[p; dim=0](x)))",
    f"(x: [m + k])\n  slice({SHIFTED}; dim=0, start=0, stop=m) "
    "=> reciprocal(shift(slice(x; dim=0, start=0, stop=m); by=0.3))",
    "(x: [m], y: [m])\n  over(x, y) => over(x, y)",
    "(x: [m], y: [m])\n  (x / y) * over(x, y) => over(x, y) * (x / y)",
    "(x: [m])\n  steps(x) => steps(x)",
    "(x: [m])\n  steps(x) + reciprocal(x) => reciprocal(x) + steps(x)",
    "(x: [m])\n  first(reciprocal(x), x) => first(reciprocal(x), x)",
]
LOST = [
    "(x: [m])\n  x => x + log(x) - log(x)",
    f"(x: [m])\n  x => x + {SHIFTED} - {SHIFTED}",
    "(x: [m])\n  exp(x) => exp(x) + reciprocal(shift(exp(x); by=-5)) - reciprocal(shift(exp(x); by=-5))",
    # a value lost at another element, or at an additional one
    "(x: [m])\n  first(reciprocal(x), x) - first(reciprocal(x), x) => reciprocal(x) - reciprocal(x)",
    f"(x: [m + m])\n  slice({SHIFTED}; dim=0, start=0, stop=m) - slice({SHIFTED}; dim=0, start=0, stop=m) "
    f"=> slice({SHIFTED}; dim=0, start=m, stop=m + m) - slice({SHIFTED}; dim=0, start=m, stop=m + m)",
    "(x: [m + k])\n  total(slice(log(x); dim=0, start=0, stop=m)) - total(slice(log(x); dim=0, start=0, stop=m)) "
    "=> total(log(x)) - total(log(x))",
    # the left side computes it in one branch only, or only compares with it
    "(x: [m], y: [m])\n  over(x, y) => over(x, y) + over_negative(x, y) - over_negative(x, y)",
    "(x: [m], y: [m])\n  over(x, y) => over(x, y) + x / y - x / y",
    "(x: [m])\n  steps(x) => steps(x) + reciprocal(x) - reciprocal(x)",
    # another function of the same argument
    "(x: [m])\n  sqrt(x) => sqrt(x) + log(x) - log(x)",
    "(x: [m])\n  reciprocal(x) => reciprocal(x) + log(x) - log(x)",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_the_left_side_applies_may_be_applied_on_the_right(text: str, library: Library) -> None:
    answer = prove_rule(rule_of(f"rule f{text}\n"), library)
    assert isinstance(answer, Proved), answer
    assert "defined" in [obligation.name for obligation in answer.obligations]


@pytest.mark.parametrize("text", LOST)
def test_a_value_that_is_lost_is_no_proof_even_without_numbers(
    text: str, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove.Prover, "difference", lambda *_: None)
    answer = prove_rule(rule_of(f"rule f{text}\n"), library)
    assert isinstance(answer, NotProved) and answer.obligation == "defined", answer


def test_a_value_that_is_lost_at_whole_numbers_is_found(library: Library) -> None:
    for text in ("(x: [m])\n  x => (x / x) * x", LOST[0]):
        assert isinstance(prove_rule(rule_of(f"rule f{text}\n"), library), Refuted), text
    answer = prove_rule(rule_of(f"rule f{LOST[1]}\n"), library)
    assert isinstance(answer, NotProved) and answer.obligation == "defined"
    assert "a quotient is not known to have a value" in answer.reason


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("above(log(x) + y, log(x))", "above(0 * log(x) + y, 0 * x)"),
        ("above(log(x) - 1, 0 * x)", "above(log(x), 0 * x + 1)"),
        ("same(reciprocal(x), reciprocal(x) + y)", "same(0 * reciprocal(x), y)"),
    ],
)
def test_a_comparison_is_not_moved_over_a_pole(left: str, right: str) -> None:
    """At `log(0)` and `1 / 0` a program has an infinity, for which the difference of the sides is NaN."""
    for first, second in ((left, right), (right, left)):
        rule = rule_of(f"rule moved(x: [n], y: [n])\n  {first}, y => {second}, y\n")
        assert not isinstance(prove_rule(rule, every_operator(), numbers=False), Proved)
    itself = rule_of(f"rule itself(x: [n], y: [n])\n  {left}, y => {left}, y\n")
    assert isinstance(prove_rule(itself, every_operator()), Proved)
