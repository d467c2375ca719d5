"""Mutants of true rules against the evaluator: no answer is wrong, and nearly all that differ are refuted.

`UNITY_MUTANTS` sets how many mutants are tried, `UNITY_MUTANTS_SEED` which.
"""

from __future__ import annotations

import os
import re

import pytest

from ..cases import library
from ..evaluator.truth import Truth
from .draws import MUTANTS, judged
from .verdict import Word, counts, table

HOW_MANY = int(os.environ.get("UNITY_MUTANTS", "250"))
SEED = int(os.environ.get("UNITY_MUTANTS_SEED", "1"))
TOO_CLOSE = "large_number_added_and_taken_off"
"""The law about x + 1e17 - 1e17: its mutants differ by less than the prover's bounds on float64 rounding."""
EXTERN = re.compile("|".join(rf"\b{decl.name}\b" for decl in library().operators.values() if decl.extern))
"""Names of extern operators. The evaluator lets them be any function, while a counterexample runs the real one. A rule
that differs only for other functions is therefore not refuted.
"""


@pytest.mark.a_day(1)
@pytest.mark.parametrize("witness", [True, False], ids=["with numbers", "without numbers"])
def test_no_answer_is_wrong_and_what_differs_is_refuted(witness: bool) -> None:
    seed = SEED if witness else SEED + 1
    found = list(judged(MUTANTS, range(HOW_MANY), seed, witness=witness))
    rows = counts(found)["all"]
    print(f"seed {seed}", *table(counts(found)), sep="\n")
    assert [f"{one.fault}: {one.detail}\n{one.text}" for one in found if one.wrong] == [], f"seed {seed}"
    assert rows[Truth.DIFFERS] > 0.3 * rows["total"] and rows[Truth.EQUAL] > 0 and rows[Word.PROVED] > 0
    if witness:
        apart = counts([one for one in found if TOO_CLOSE not in one.text and not EXTERN.search(one.text)])["all"]
        assert apart["differs and refuted"] >= 0.99 * apart[Truth.DIFFERS], f"seed {seed}"
