"""Programs that gather weights and scatter gradients in two steps, between and within nodes, against one device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool

FAR = str(Path(__file__).parent / "far.toml")
GPT2 = Path(__file__).parents[2] / "examples" / "gpt2.udl"


@pytest.mark.parametrize("mesh", [(2, 2), (4, 2)], ids=str)
def test_weights_and_gradients_go_in_two_steps(
    mesh: tuple[int, ...], compile_program: Callable[..., Path], pool: RankPool
) -> None:
    """Covers prefetched gathers and bucketed sums, in bf16 as well."""
    choices = {"preset": "small", "strategy": "zero", "settings": {"b": 8}}
    out = compile_program(GPT2, machine=FAR, devices=mesh[0] * mesh[1], mesh=mesh, **choices)
    text = (out / "parallel.py").read_text()
    assert text.count("TwoGroups(mesh") == 1
    for step in ('all_gather, 0, "fsdp_by_fsdp_outer"', 'reduce_scatter, 0, "fsdp_by_fsdp_outer"'):
        assert step in text
    report = check(out, pool=pool)
    assert report.ok, report
