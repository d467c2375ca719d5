"""Rules near true ones: what is proved of them agrees in exact numbers, what differs is refuted.

`UNITY_MUTANTS` sets how many are tried (`all`: what bench/mutants.py counts), `UNITY_MUTANTS_SEED` which.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from unity_dsl.prove import rule_proof as prove
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.syntax.diagnostic import InputError

from .cases import library, rules_of
from .exact import check
from .judgement import Truth, Word, counts, judge, table
from .mutation import Mutant, mutants

HOW_MANY = os.environ.get("UNITY_MUTANTS", "250")
SEED = int(os.environ.get("UNITY_MUTANTS_SEED", "1"))


def some_mutants(seed: int) -> list[Mutant]:
    every = [mutant for rule in rules_of("proved") for mutant in mutants(rule, library())]
    assert len({rule for _, rule in every}) == len(every) > 2000
    return every if HOW_MANY == "all" else Random(seed).sample(every, int(HOW_MANY))


def test_no_answer_is_wrong_and_what_differs_is_refuted() -> None:
    judgements = [judge(rule, kind, library()) for kind, rule in some_mutants(SEED)]
    rows = counts(judgements)
    print(f"seed {SEED}", *table(rows), sep="\n")
    assert [judgement for judgement in judgements if not judgement.sound] == [], f"seed {SEED}"
    every = rows["all"]
    assert every["differ and refuted"] >= 0.99 * every[Truth.DIFFER] > 0.3 * every["total"]
    assert every[Truth.AGREE] > 0 and every[Word.PROVED] > 0


def test_nothing_wrong_is_proved_without_the_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The witness, which runs both sides of what is proved once more, is not what makes proofs right."""
    monkeypatch.setattr(prove.Prover, "difference", lambda *_: None)
    answers: Counter[str] = Counter()
    for kind, mutant in some_mutants(SEED + 1):
        try:
            answer = prove_rule(mutant, library())
        except InputError:
            continue
        answers[type(answer).__name__] += 1
        if isinstance(answer, Proved):
            checked = check(mutant, library(), 10)
            assert checked.found is None and checked.meaningless is None, f"seed {SEED + 1}, {kind}: {mutant}"
    assert answers["NotProved"] > 3 * answers["Proved"] > 0, answers
