"""Random rules: the prover's proofs and refutations against the independent evaluator.

`UNITY_ADVERSARY` sets how many rules are tried, `UNITY_ADVERSARY_SEED` which; bench/adversary.py tries thousands.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.sampling import EVERYTHING
from unity_dsl.prove.answer import Proved, Refuted
from unity_dsl.prove.refutation.numeric_run import Difference, InputValues

from ..cases import rule_of
from ..evaluator.truth import Truth
from . import verdict as module
from .batch import library_with
from .draws import judged, shares
from .generate import KINDS, Case, drawn_case
from .verdict import Fault, Verdict, Word, counts, table, verdict

HOW_MANY = int(os.environ.get("UNITY_ADVERSARY", "120" if EVERYTHING else "40"))
SEED = int(os.environ.get("UNITY_ADVERSARY_SEED", "1"))


def tried(total: int, seed: int, *, witness: bool) -> list[Verdict]:
    return [one for kind, count in shares(total).items() for one in judged(kind, range(count), seed, witness=witness)]


@pytest.mark.parametrize("witness", [True, False], ids=["with numbers", "without numbers"])
def test_no_answer_is_wrong(witness: bool) -> None:
    """Without numbers, proofs rest on the calculus alone, and the numeric witness cannot hide a wrong one."""
    seed = SEED if witness else SEED + 1
    found = tried(HOW_MANY, seed, witness=witness)
    rows = counts(found)
    print(f"seed {seed}", *table(rows), sep="\n")
    assert [f"{one.fault}: {one.detail}\n{one.text}" for one in found if one.wrong] == [], f"seed {seed}"
    every = rows["all"]
    assert every["total"] > 0.9 * HOW_MANY
    assert every[Truth.EQUAL] > 0.3 * every["total"] < 3 * every[Truth.DIFFERS]
    assert every[Word.PROVED] > 0.2 * every["total"]
    if witness:
        assert every["differs and refuted"] > 0.5 * every[Truth.DIFFERS]


def test_rules_are_drawn_from_the_seed_alone() -> None:
    for kind in KINDS:
        cases = [str(drawn_case(kind, number, SEED)) for number in range(20)]
        assert cases == [str(drawn_case(kind, number, SEED)) for number in range(20)]
        assert len(set(cases)) > 10
    assert sum(shares(20_000).values()) == 20_000 and len(shares(20_000)) == len(KINDS) + 1


def test_a_false_proof_and_a_false_refutation_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prover is replaced by one that proves everything, and by one whose counterexample has equal sides."""
    library = library_with([Case("own", "own", "op own(x: [n]) -> z: [n]\n  z[n] = select(n < 70, x[n], 0)\n", "")])
    shown = InputValues("x", (), (2,), (1.0, 0.5))
    refuted = Refuted(Difference({"n": 2}, 0, (0,), 1.0, 2.0, inputs=(shown,)), 0.0)

    def told(text: str, answer: Proved | Refuted) -> Verdict:
        monkeypatch.setattr(module, "prove_rule", lambda *_, **__: answer)
        return verdict(rule_of(f"rule f(x: [n])\n  {text}\n"), "own", library)

    assert told("own(x) => x", Proved((), 0, 0.0)).fault is Fault.FALSE_PROOF
    assert told("own(x) => relu(own(x)) - relu(-own(x))", Proved((), 0, 0.0)).fault is None
    assert told("own(x) => x", refuted).fault is Fault.FALSE_REFUTATION
    assert told("own(x) => 2 * x", refuted).fault is None
    assert told("slice(x; dim=0, start=0, stop=5) => slice(x; dim=0, start=0, stop=5)", Proved((), 0, 0.0)).wrong


def test_verdicts_are_read_back() -> None:
    for one in judged("far", range(6), SEED, witness=True):
        read = Verdict.from_json(json.loads(json.dumps(one.to_json())))
        assert (read.kind, read.truth, read.word, read.fault) == (one.kind, one.truth, one.word, one.fault)
