"""Random models under random legal plans: every program must equal its model on one device.

`UNITY_FUZZ_CASES` sets how many are drawn (200 for a full run), `UNITY_FUZZ_SEED` which. A failure prints the model and
the seed; the same seed and case number draw the same model and plan again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from unity_dsl.emit.program_check import TOLERANCE
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.index.library import Library
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.render import render

from .cases import Drawn, draw, errors_of, libraries, random_text, write
from .evaluate import losses
from .plans import features

CASES = int(os.environ.get("UNITY_FUZZ_CASES", "30"))
SEED = int(os.environ.get("UNITY_FUZZ_SEED", "1"))
MESHES = ((2, 2), (2,), (4,), (2, 2))
THREE_AXES = (1000, 1004)
"""Numbers of cases on the mesh 2 x 2 x 2; `bench/check_random.py` checks a hundred."""


@pytest.fixture(scope="module")
def known() -> tuple[Library, Library]:
    return libraries()


def drawn(case: int, degrees: Sequence[int], known: tuple[Library, Library]) -> Drawn:
    try:
        return draw(SEED, case, degrees, known)
    except InputError as error:
        pytest.fail(f"{describe(case, random_text(SEED, case)[0])}\n{render(error.diagnostic)}")


def describe(case: int, text: str) -> str:
    return f"seed {SEED}, case {case} (UNITY_FUZZ_SEED={SEED} pytest tests/fuzz -k 'plan and {case}')\n{text}"


@pytest.mark.parametrize("case", [*range(CASES), *THREE_AXES])
def test_a_random_plan_equals_its_model(
    case: int, pool: RankPool, known: tuple[Library, Library], tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    found = drawn(case, (2, 2, 2) if case in THREE_AXES else MESHES[case % len(MESHES)], known)
    program = write(found.plan, found.library, tmp_path / "program")
    reference = write(found.alone, found.library, tmp_path / "reference")
    expected, loss = losses(found.model, found.library, reference)
    assert loss == pytest.approx(expected, rel=1e-9, abs=1e-12), describe(case, found.text)
    try:
        largest, errors = errors_of(found, program, reference, pool)
    except InputError as error:
        pytest.fail(f"{describe(case, found.text)}\n{error.diagnostic.message}\n{error.diagnostic.help}")
    assert largest <= TOLERANCE, f"{describe(case, found.text)}\n{errors}\n{(program / 'model.py').read_text()}"


def test_the_cases_reach_every_role_and_every_conversion(known: tuple[Library, Library]) -> None:
    """At least thirty cases are drawn: fewer could miss one by chance."""
    found: Counter[str] = Counter()
    for case in range(max(CASES, 30)):
        found += features(drawn(case, MESHES[case % len(MESHES)], known).plan)
    roles = {"uniformly I", "uniformly R", "linearly", "along", "summed", "inner", "merged", "runs"}
    steps = ("slice", "mask", "pad", "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "exchange")
    wanted = roles | {f"{way} {step}" for way in ("forward", "backward") for step in steps}
    assert wanted <= found.keys()
