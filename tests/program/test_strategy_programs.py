"""The programs of every strategy's plans equal their model on one device."""

from __future__ import annotations

import pytest

from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.search.strategies import STRATEGIES

from .example_cases import Case, Checker

EXAMPLES = ("bert_unity", "dlrm_unity", "mlp_unity")
"""By turns."""
CASES = [(name, EXAMPLES[number % len(EXAMPLES)]) for number, name in enumerate(STRATEGIES)]


@pytest.fixture(scope="module")
def checker(pool: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(pool, tmp_path_factory.mktemp("strategies"))


@pytest.mark.parametrize(("strategy", "example"), CASES, ids=[name for name, _ in CASES])
def test_a_program_equals_its_model(strategy: str, example: str, checker: Checker) -> None:
    finding = checker.check(Case(example, (2,), 2, strategy))
    assert finding.ok, str(finding)
