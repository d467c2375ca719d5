"""Random models, rewritten by random rules, under random legal plans: every program equals the model as written.

`UNITY_FUZZ_CASES` and `UNITY_FUZZ_SEED` as for plans; a quarter as many cases are drawn.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.prove.cases import library
from tests.rules.models import random_rewritings
from tests.rules.side_models import build
from unity_dsl.emit.program_check import TOLERANCE, compare
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh, MeshAxis

from .models import random_model
from .plans import random_plan
from .test_fuzz_plans import CASES, SEED, write


def draw(case: int) -> tuple[str, Model, Model, Random]:
    """The text of a model, the model, its rewriting by random rules, and the generator."""
    rng = Random(f"rules {SEED} {case}")
    while True:
        text = random_model(rng)
        model = build(text)
        made = list(islice(random_rewritings(model, rng), 4))
        if made:
            return text, model, made[-1], rng


@pytest.mark.parametrize("case", range(max(1, CASES // 4)))
def test_a_changed_model_equals_the_given_one(case: int, pool: RankPool, tmp_path: Path) -> None:
    text, model, changed, rng = draw(case)
    mesh = Mesh((MeshAxis("a", 2),))
    program = write(random_plan(changed, mesh, library(), rng), library(), tmp_path / "program")
    reference = write(random_plan(model, Mesh(()), library(), rng), library(), tmp_path / "reference")
    errors = compare(program, reference, 2, pool=pool)
    largest = max(errors["loss_rel_err"], errors["grad_rel_err"], errors["param_rel_err"])
    rules = [node.rule for node in changed.graph.nodes()]
    assert any(rules)
    assert largest <= TOLERANCE, f"seed {SEED}, case {case}, rules {rules}\n{text}\n{errors}"
