"""Proving and accepting files of rules."""

from __future__ import annotations

from math import nan

import pytest

from unity_dsl.prove.answer import NotProved, Proved, Refuted
from unity_dsl.prove.refutation.numeric_run import Difference
from unity_dsl.rules.certificate import certify
from unity_dsl.rules.rulebook import accept_rules, difference_text, prove_rules, reason_text
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

from ..prove.cases import library

TRUE = """\
rule relu_twice(x: [b..])
  relu(relu(x)) => relu(x)

rule sliced(x: [m]) where m >= k + 2 * n
  slice(x; dim=0, start=k, stop=k + n) => slice(x; dim=0, start=k, stop=k + n)
"""
FALSE = "rule relu_moves_out(x: [m, k], w: [k, n])\n  matmul(relu(x), w) => relu(matmul(x, w))\n"
OPEN = "rule shapes(x: [m], y: [n])\n  x + y => y + x\n"


def source(text: str) -> Source:
    return Source("laws.rules", text)


def test_every_rule_has_its_verdict_in_order() -> None:
    told: list[tuple[int, int, str]] = []
    verdicts = prove_rules(source(TRUE + FALSE + OPEN), library(), lambda *at: told.append((*at[:2], at[2].name)))
    assert [type(verdict.answer) for verdict in verdicts] == [Proved, Proved, Refuted, NotProved]
    assert [verdict.conditions for verdict in verdicts] == [(), ("m >= k + 2 * n",), (), ()]
    names = ["relu_twice", "sliced", "relu_moves_out", "shapes"]
    assert told == [(number, 4, name) for number, name in enumerate(names)]
    assert [verdict.rule.name for verdict in verdicts] == names


@pytest.mark.parametrize("text", ["rule f(x: [m])\n  reluu(x) => x\n", "rule f(x: [m])\n  x\n"])
def test_a_text_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(InputError):
        prove_rules(source(TRUE + text), library())


def test_rules_are_accepted_where_all_are_proved() -> None:
    assert [accepted.rule.name for accepted in accept_rules(source(TRUE), library())] == ["relu_twice", "sliced"]
    for text, words in ((FALSE, "is false: at m = "), (OPEN, "is not proved: same_shape: ")):
        with pytest.raises(InputError) as caught:
            accept_rules(source(TRUE + text), library())
        assert caught.value.diagnostic.code == "E542"
        assert words in caught.value.diagnostic.message
        assert caught.value.diagnostic.span is not None


def test_a_certificate_spares_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = prove_rules(source(TRUE), library())
    found = {v.rule.name: certify(v.rule, v.answer, library()) for v in verdicts if isinstance(v.answer, Proved)}

    def refuse(*_: object) -> None:
        raise AssertionError("proved again")

    monkeypatch.setattr("unity_dsl.rules.rulebook.prove_rule", refuse)
    assert len(accept_rules(source(TRUE), library(), found)) == 2
    with pytest.raises(InputError, match="proved again"):
        accept_rules(source(TRUE.replace("relu(relu(x)) =>", "relu(relu(relu(x))) =>")), library(), found)
    with pytest.raises(InputError, match="proved again"):
        accept_rules(source(TRUE), library(), {"relu_twice": found["relu_twice"]})


def test_a_difference_is_told_with_its_place() -> None:
    found = Difference({"m": 2, "k": 3}, 1, (0, 1), 0.5, float("inf"), written={"m": 2, "k": 3})
    assert difference_text(found) == "at m = 2, k = 3: output 1[0, 1] is 0.5 on the left, inf on the right"
    assert difference_text(Difference({}, 0, (), 6.0, 4.0)) == "output 0 is 6 on the left, 4 on the right"
    assert difference_text(Difference({}, 0, (), 4.0, nan)) == "output 0 is 4 on the left, no value on the right"
    found = Difference({"m": 2}, 0, (), 4.0, 6.0, shapes=((2, 2), (3, 2)), evaluation=True, written={"m": 2})
    assert difference_text(found) == (
        "outside training, at m = 2: output 0 has the shape [2, 2] on the left, [3, 2] on the right"
    )
    assert reason_text(NotProved("divides", "p does not divide m", 0.1)) == "divides: p does not divide m"
