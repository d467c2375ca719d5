"""Tables, bags and products of pairs, sharded along every axis; tied encoders; tables of 3 rows and of 40 million."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.layout import Shard
from unity_dsl.resources import folder

Compile = Callable[..., Path]

PAIRS = """
model pairs[b = 8, v = 64, l = 4, d = 8, f = 4]
  input ids: int<v>[b, l]
  input more: int<v>[b, l]
  input x: f32[b, f - 2, d]
  input mask: int<2>[b, 1]
  input target: f32[b, d + 6]
  weight table: f32[v, d] ~ normal(1)
  weight other: f32[v, d] ~ normal(1)
  bag = embedding_bag(ids, table)
  mean = embedding_bag_mean(more, other)
  rows = concat(bag[b, d] -> [b, 1, d], mean[b, d] -> [b, 1, d], x; dim=1)
  products = matmul(rows, rows[b, f, d] -> [b, d, f])
  pairs = lower_triangle(products)
  y = concat(choose(mask, bag, mean), softplus(pairs); dim=1)
  loss huber(y, target) + binary_cross_entropy(sigmoid(y), sigmoid(target)) + l1(log_softmax(y), target)
  output y
"""

ROWS = ("table=S0", "other=S0", "bag=P", "mean=P")


@pytest.mark.parametrize(
    "ranks, pins",
    [
        (2, (*ROWS, "products=S1")),
        (2, ("bag=P", "mean=P", "table=I", "other=I", "products=S2")),
        (2, ("table=S1", "other=S1", "bag=S1", "mean=S1", "rows=S2", "products=P")),
        (4, (*ROWS, "rows=S2", "products=P", "pairs=S0")),
    ],
    ids=["rows", "entries", "columns", "four"],
)
def test_every_axis_of_tables_and_pairs(
    ranks: int, pins: tuple[str, ...], compile_program: Compile, pool: RankPool
) -> None:
    out = compile_program(PAIRS, devices=ranks, machine=str(Path(__file__).parent / "slow.toml"), pins=pins)
    report = check(out, pool=pool)
    assert report.ok, report


def test_a_table_divided_by_rows_is_looked_up(compile_program: Compile) -> None:
    """The program gathers rows, and has no loop over all rows."""
    text = (compile_program(PAIRS, devices=2, pins=ROWS) / "model.py").read_text()
    assert "self.table[v_" in text and "arange(32" not in text


@pytest.mark.parametrize(
    "ranks, pins",
    [
        (2, ("drug1.w_in=S0", "drug1.hidden.w=S1", "drug1.y1=S1")),
        (4, ("drug1.w_in=I", "drug1.y1=S0", "drug1.y2=S0")),
    ],
    ids=["features", "batch"],
)
def test_weights_that_two_encoders_share(
    ranks: int, pins: tuple[str, ...], compile_program: Compile, pool: RankPool
) -> None:
    """Each weight's gradient is the sum of both uses, counted once."""
    out = compile_program(folder("examples") / "candle_uno.udl", preset="small", devices=ranks, pins=pins)
    report = check(out, pool=pool)
    assert report.ok, report


def test_dlrm_at_full_size() -> None:
    """26 tables of 3 to 40 million rows on 8 devices: only dimensions that divide are sharded, and everything fits."""
    request = Request(folder("examples") / "dlrm.udl", machine="dgx-a100", devices=8)
    plan = compile_model(request).plan
    tables = [planned for name, planned in plan.graph.values.items() if name.startswith("table") and name[-2:] == ".w"]
    assert len(tables) == 26 and {3, 39_979_771} < {table.value.shape[0] for table in tables}
    held = 0
    for table in tables:
        shape = list(table.value.shape)
        for axis, kind in enumerate(table.produced.kinds):
            if isinstance(kind, Shard):
                degree = plan.mesh.axes[axis].degree
                assert shape[kind.dim] % degree == 0, table
                shape[kind.dim] //= degree
        if table.value.elements > 10**8:
            assert 8 * shape[0] * shape[1] == table.value.elements, f"{table} is not divided over all devices"
        held += shape[0] * shape[1]
    assert 8 * held < 1.1 * sum(table.value.elements for table in tables)
