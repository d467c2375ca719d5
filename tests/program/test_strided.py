"""A user-declared kind of parallelism that interleaves: a merged dimension sharded along its minor axis."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool

from ..graph.overlapping import STRIDED

Compile = Callable[..., Path]
THIN = str(Path(__file__).parent / "thin.toml")

MIX = """
## Every head a sum of heads.
op mix(x: [b, h, k], m: [g, h]) -> y: [b, g, k]
  y[b, g, k] = sum(h) tanh(x[b, h, k]) * m[g, h]
"""

HEADS = """model heads[b = 3, h = 3, k = 64]
  input x: f32[b, h, k]
  input target: f32[b, h, k]
  weight m: f32[h, h] ~ normal(0.5)
  weight n: f32[h, h] ~ normal(0.5)
  a = mix(x, m)
  merged = a[b, h, k] -> [b, (h k)]
  split = merged[b, (h=3 k)] -> [b, h, k]
  c = mix(split, n)
  loss mse(c, target)
"""

LINEAR = """model heads[b = 2, d = 8, h = 3, k = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[24, d] ~ normal(0.3)
  weight m: f32[h, h] ~ normal(0.5)
  weight v: f32[d, 24] ~ normal(0.3)
  y = linear(x, w)
  heads = y[b, (h=3 k)] -> [b, h, k]
  mixed = mix(heads, m)
  merged = mixed[b, h, k] -> [b, (h k)]
  z = linear(merged, v)
  loss mse(z, target)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "my_ops"
    own.mkdir()
    (own / "strided.uop").write_text(STRIDED + MIX)
    return own


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_search_divides_the_minor_axis(ranks: int, folder: Path, compile_program: Compile, pool: RankPool) -> None:
    """Three heads and three rows do not divide by two, but k does. Merging and splitting then need no communication."""
    out = compile_program(HEADS, devices=ranks, machine=THIN, operators=[folder])
    graph = json.loads((out / "plan.json").read_text())["graph"]
    views = [step["configuration"] for step in graph["steps"] if step["operator"] == "rearrange"]
    assert all(role == "along k by strided" for roles in views for role in roles), views
    assert "strided(1; block=" in graph["values"]["merged"]["layout"]
    assert not any(graph["values"][name].get("materialised") for name in ("a", "merged", "split"))
    report = check(out, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_conversions_to_and_from_it(
    mesh: tuple[int, ...], folder: Path, compile_program: Compile, pool: RankPool
) -> None:
    pins = ["y=S1", "heads=S2", "mixed=S2", "z=S1"]
    devices = 2 * len(mesh)
    out = compile_program(LINEAR, devices=devices, mesh=mesh, pins=pins, operators=[folder])
    assert "strided" in (out / "parallel.py").read_text()
    report = check(out, pool=pool)
    assert report.ok, report
