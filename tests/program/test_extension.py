"""A user's own operator, element function and parallel op need only one file in a folder of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool

Compile = Callable[..., Path]

OPERATORS = """
## x / (1 + |x|), a cheap squashing function.
fn softsign(x) = x / (1 + abs(x))
  derivative x: 1 / ((1 + abs(x)) * (1 + abs(x)))

## Gate one tensor by another, then bring every row to unit length.
op gated_unit(x: [b.., c], gate: [b.., c]; eps = 1e-6) -> y: [b.., c]
  g[b.., c] = x[b.., c] * softsign(gate[b.., c])
  n[b..]    = sum(c) g[b.., c] * g[b.., c]
  y[b.., c] = g[b.., c] * rsqrt(n[b..] + eps)
"""

PARALLEL = """
## Deals positions of dimension `dim` out like cards: device @p gets every |p|-th.
parallel cyclic[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., j * |p| + @p, g..]
"""

MODEL = """model own[b = 8, d = 16]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.3)
  weight v: f32[d, d] ~ normal(0.3)
  h = linear(x, w)
  g = linear(x, v)
  y = gated_unit(h, g)
  loss mse(y, target)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "my_ops"
    own.mkdir()
    (own / "gates.uop").write_text(OPERATORS)
    (own / "cyclic.uop").write_text(PARALLEL)
    return own


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("pins", [[], ["y=S0"], ["h=S1", "g=S1", "y=S1"]], ids=["auto", "rows", "columns"])
def test_own_operator(ranks: int, pins: list[str], folder: Path, compile_program: Compile, pool: RankPool) -> None:
    report = check(compile_program(MODEL, devices=ranks, pins=pins, operators=[folder]), pool=pool)
    assert report.ok, report


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    "pins",
    [
        ["h=cyclic(0)", "g=cyclic(0)", "y=cyclic(0)"],
        ["h=cyclic(1)", "g=cyclic(1)", "y=cyclic(1)"],
        ["h=cyclic(1)", "g=S1", "y=S0"],
    ],
    ids=["rows", "columns", "mixed"],
)
def test_own_parallel_op(ranks: int, pins: list[str], folder: Path, compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(MODEL, devices=ranks, pins=pins, operators=[folder])
    assert "cyclic" in (out / "parallel.py").read_text() + (out / "model.py").read_text()
    report = check(out, pool=pool)
    assert report.ok, report
