"""Every example, by every strategy, on one, two and four ranks, equals its model on one device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.resources import folder

EXAMPLES = sorted(folder("examples").glob("*.udl"))
STRATEGIES = ("auto", "data_parallel", "single")


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"digits", "mlp", "gpt2", "bert_large"}


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(
    example: Path, strategy: str, ranks: int, compile_program: Callable[..., Path], pool: RankPool
) -> None:
    out = compile_program(example, devices=ranks, machine="dgx-a100", preset="small", strategy=strategy)
    report = pool.check(out)
    assert not report.recompiled
    assert report.ok, report
