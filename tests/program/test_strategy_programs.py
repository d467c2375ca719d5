"""The programs of every strategy's plans, with rules and on the strategy's own meshes, pass `unityc check`.

Each strategy has another example or number of ranks every day; `python bench/check_examples.py --strategies` checks all
of them.
"""

from __future__ import annotations

import pytest

from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.search.strategies import STRATEGIES

from ..sampling import SAMPLE
from .example_cases import Case, Checker, strategy_cases

EXAMPLES = ("bert_unity", "dlrm_unity", "mlp_unity", "mlp", "gpt2", "dlrm", "mixtral_8x7b", "llama3_8b")
"""Examples whose programs together take minutes to check."""
RANKS = (2, 4)


def case_of(strategy: str, day: int) -> Case:
    """The case of a strategy on a day. Over the days all cases occur; on one day strategies have different examples."""
    every = [case for name in EXAMPLES for case in strategy_cases(name, RANKS) if case.strategy == strategy]
    return every[(day * (len(RANKS) + 1) + list(STRATEGIES).index(strategy)) % len(every)]


@pytest.fixture(scope="module")
def checker(pool: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(pool, tmp_path_factory.mktemp("strategies"))


@pytest.mark.a_day(4)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_program_equals_its_model(strategy: str, checker: Checker) -> None:
    case = case_of(strategy, SAMPLE)
    print(f"UNITY_SAMPLE={SAMPLE}: {case}")
    finding = checker.check(case)
    assert finding.ok, f"UNITY_SAMPLE={SAMPLE}: {finding}"


def test_all_cases_come_in_turn() -> None:
    days = range(len(EXAMPLES) * len(RANKS))
    for strategy in STRATEGIES:
        seen = {case_of(strategy, day) for day in days}
        assert len(seen) == len(days) and {case.ranks for case in seen} == set(RANKS)
    assert len({case_of(strategy, 0).example for strategy in STRATEGIES}) == len(EXAMPLES)


@pytest.mark.parametrize("strategy", ["auto", "taso"])
def test_substitutions_are_in_the_programs(strategy: str, checker: Checker) -> None:
    """Without substitutions in the programs, the agreement above would say nothing about them."""
    finding = checker.check(Case("mlp", (), 4, strategy, rules=True))
    assert finding.ok and finding.divided > 0.8 and "linear_with_bias" in finding.applied, finding
