"""Rules that nobody has read: what is proved of them is equal, what is refuted differs, as the evaluator sees it.

`UNITY_ADVERSARY` sets how many are tried, `UNITY_ADVERSARY_SEED` which; bench/adversary.py tries thousands.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from ..evaluator.truth import Truth
from .draws import judged, shares
from .generate import KINDS, drawn_case
from .verdict import Fault, Verdict, Word, counts, table

HOW_MANY = int(os.environ.get("UNITY_ADVERSARY", "140"))
SEED = int(os.environ.get("UNITY_ADVERSARY_SEED", "1"))


def tried(total: int, seed: int, *, witness: bool) -> list[Verdict]:
    return [one for kind, count in shares(total).items() for one in judged(kind, range(count), seed, witness=witness)]


@pytest.mark.parametrize("witness", [True, False], ids=["with numbers", "without numbers"])
def test_no_answer_is_wrong(witness: bool) -> None:
    """Without numbers, proofs stand on the calculus alone: the witness is not what makes them right."""
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
    assert Counter(shares(20_000).values()).total() == len(KINDS) + 1 and sum(shares(20_000).values()) == 20_000


def test_a_false_proof_and_a_false_refutation_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself: a prover that says yes to everything, and one that refutes with its own first draw."""
    from unity_dsl.prove.answer import Proved, Refuted
    from unity_dsl.prove.refutation.numeric_run import Difference, InputValues

    from . import verdict as module

    def says(answer: Proved | Refuted) -> list[Fault | None]:
        monkeypatch.setattr(module, "prove_rule", lambda *_, **__: answer)
        return [one.fault for one in judged("whole", range(30), SEED, witness=True)]

    assert says(Proved((), 0, 0.0)).count(Fault.FALSE_PROOF) > 5
    shown = InputValues("x", (), (70,), (1.0,) * 70)
    nothing = Difference({"n": 70, "m": 1}, 0, (0,), 1.0, 2.0, inputs=(shown,))
    faults = says(Refuted(nothing, 0.0))
    assert faults.count(Fault.FALSE_REFUTATION) > 5
