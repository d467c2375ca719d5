"""Every example, by every strategy, on one, two and four ranks, equals its model on one device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.compile import Request, compile_model
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.resources import folder

EXAMPLES = sorted(folder("examples").glob("*.udl"))
STRATEGIES = ("auto", "data_parallel", "single")
SLOW = str(Path(__file__).parent / "slow.toml")
"""A machine on which it pays to divide even a small preset; on a real one `auto` would divide nothing of it."""


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"digits", "mlp", "gpt2", "bert_large"}


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(
    example: Path, strategy: str, ranks: int, compile_program: Callable[..., Path], pool: RankPool
) -> None:
    out = compile_program(example, devices=ranks, machine=SLOW, preset="small", strategy=strategy)
    report = pool.check(out)
    assert not report.recompiled
    assert report.ok, report


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_these_plans_divide(example: Path) -> None:
    """Otherwise the agreement above shows nothing."""
    request = Request(example, preset="small", machine=SLOW, devices=4)
    plan = compile_model(request).plan
    nodes = list(plan.graph.nodes())
    divided = sum(bool(node.typed.divided) for node in nodes)
    assert divided > 0.8 * len(nodes), f"{divided} of {len(nodes)} operators are divided"
