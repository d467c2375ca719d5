"""Sequence and context parallelism, and grouped heads on more devices than there are key-value heads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.plan import PlannedNode
from unity_dsl.resources import folder

from .counting import count_collectives

LAYER = """
block attend(x)
  weight query: f32[d, d] ~ normal(0.3)
  weight key: f32[kv_heads * (d / heads), d] ~ normal(0.3)
  weight value: f32[kv_heads * (d / heads), d] ~ normal(0.3)
  weight out: f32[d, d] ~ normal(0.3)
  q = rope(linear(x, query)[b, s, (h=heads e)] -> [b, h, s, e])
  k = rope(linear(x, key)[b, t, (h=kv_heads e)] -> [b, h, t, e])
  v = linear(x, value)[b, t, (h=kv_heads e)] -> [b, h, t, e]
  mixed = causal_attention(q, k, v)
  return linear(mixed[b, h, s, e] -> [b, s, (h e)], out)

model layer[b = 2, s = 16, d = 32, heads = 4, kv_heads = 2, hidden = 64, p = 0.1]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight first: f32[d, d] ~ normal(0.3)
  weight gain1: f32[d] ~ ones
  weight gain2: f32[d] ~ ones
  weight up: f32[hidden, d] ~ normal(0.3)
  weight down: f32[d, hidden] ~ normal(0.3)
  e = linear(x, first)
  n1 = rms_norm(e, gain1)
  a = attend(n1)
  dropped = dropout(a; p=p)
  r = e + dropped
  n2 = rms_norm(r, gain2)
  h = silu(linear(n2, up))
  f = linear(h, down)
  y = r + dropout(f; p=p)
  loss mse(y, target)
"""
MEGATRON = {
    **dict.fromkeys(("first", "gain1", "gain2"), "I"),
    **dict.fromkeys(("a.query", "a.key", "a.value", "up"), "S0"),
    **dict.fromkeys(("a.out", "down", "a.q", "a.k", "a.v", "a.mixed"), "S1"),
    **dict.fromkeys(("a.rearrange_3", "linear_1", "h"), "S2"),
    **dict.fromkeys(("a", "f", "loss"), "P"),
    **dict.fromkeys(("e", "n1", "dropped", "r", "n2", "dropout_1", "y"), "S1"),
}
"""Heads and hidden features are sharded inside the attention and feed-forward parts, the sequence outside of them."""
CONTEXT = {
    **dict.fromkeys(("a.query", "a.key", "a.value", "a.out", "first", "gain1", "gain2", "up", "down"), "I"),
    **dict.fromkeys(("e", "n1", "a", "dropped", "r", "n2", "h", "f", "dropout_1", "y"), "S1"),
    **dict.fromkeys(("a.linear_*", "a.rearrange_3"), "S1"),
    **dict.fromkeys(("a.rearrange_1", "a.rearrange_2", "a.q", "a.k", "a.v", "a.mixed"), "S2"),
    "loss": "P",
}
"""Weights are whole and the sequence is sharded everywhere."""

Compile = Callable[..., Path]
SLOW = str(Path(__file__).parent / "slow.toml")
"""A machine on which replicated scores plus partial sums of the values do not pay."""
THIN = str(Path(__file__).parent / "thin.toml")
"""A machine on which sending few bytes pays, whatever the copies cost."""


def pins(layouts: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={layout}" for name, layout in layouts.items())


def collectives(pool: RankPool, out: Path, ranks: int) -> tuple[Counter[str], Counter[str]]:
    forward, backward = pool.run(count_collectives, str(out), 0, ranks=ranks)[0]
    return forward, backward


@pytest.mark.parametrize("ranks", [4])
def test_the_sequence_is_divided_between_divided_matrix_products(
    ranks: int, compile_program: Compile, pool: RankPool
) -> None:
    """Megatron's all-reduces become an all-gather before each part and a reduce-scatter after it."""
    choices = {"machine": THIN, "settings": {"heads": 8, "kv_heads": 4}}
    out = compile_program(LAYER, devices=ranks, pins=pins(MEGATRON), **choices)
    assert check(out, pool=pool).ok
    forward, backward = collectives(pool, out, ranks)
    assert forward == Counter(all_gather_into_tensor=2, reduce_scatter_tensor=2)
    assert backward == Counter(all_gather_into_tensor=2, reduce_scatter_tensor=2, all_reduce=3)


@pytest.mark.parametrize("ranks", [4])
def test_queries_divided_by_position_gather_keys_and_values(
    ranks: int, compile_program: Compile, pool: RankPool
) -> None:
    out = compile_program(LAYER, devices=ranks, machine=SLOW, pins=pins(CONTEXT))
    assert check(out, pool=pool).ok
    forward, backward = collectives(pool, out, ranks)
    assert forward == Counter(all_gather_into_tensor=2)
    assert backward == Counter(reduce_scatter_tensor=2, all_reduce=9)


@pytest.mark.parametrize("ranks", [2])
def test_keys_divided_by_position_reduce_maximum_and_sum_of_rows(
    ranks: int, compile_program: Compile, pool: RankPool
) -> None:
    """Queries are gathered. Row maxima, row sums and partial sums of the mixed values are reduced."""
    layouts = {**CONTEXT, "a.mixed": "P"}
    out = compile_program(LAYER, devices=ranks, machine=SLOW, pins=pins(layouts))
    assert check(out, pool=pool).ok
    forward, _ = collectives(pool, out, ranks)
    assert forward == Counter(all_gather_into_tensor=1, all_reduce=2, reduce_scatter_tensor=1)


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., list[PlannedNode]]:
    """`planned(operator, pins, devices=8, …)` returns the operator's nodes in a plan of the layer."""

    def found(operator: str, layouts: dict[str, str], **choices: Any) -> list[PlannedNode]:
        path = tmp_path / "model.udl"
        path.write_text(LAYER)
        plan = compile_model(Request(path, machine="dgx-a100", pins=pins(layouts), **choices)).plan
        return [node for node in plan.graph.nodes() if node.node.instance.name == operator]

    return found


@pytest.mark.parametrize("kv_heads, shared", [(2, "S1,R,R"), (4, "S1,S1,R")])
def test_devices_beyond_the_key_value_heads_divide_the_groups_of_queries(
    kv_heads: int, shared: str, planned: Callable[..., list[PlannedNode]]
) -> None:
    sizes = {"heads": 16, "kv_heads": kv_heads}
    (node,) = planned("causal_attention", {"a.mixed": "S1"}, devices=8, mesh=(2, 2, 2), settings=sizes)
    assert [str(layout) for layout in node.typed.arguments] == ["S1,S1,S1", shared, shared]
    assert node.typed.native


def test_groups_of_queries_on_more_devices_than_key_value_heads(compile_program: Compile, pool: RankPool) -> None:
    layouts = {"a.q": "S1", "a.mixed": "S1", "a.k": "S1,R", "a.v": "S1,R"}
    out = compile_program(LAYER, devices=4, machine="dgx-a100", pins=pins(layouts))
    assert (
        "F.scaled_dot_product_attention(a_q, a_k, a_v, is_causal=True, enable_gqa=True)"
        in (out / "model.py").read_text()
    )
    assert check(out, pool=pool).ok


def test_other_axes_are_divided_where_the_sequence_cannot_be(compile_program: Compile, pool: RankPool) -> None:
    """2 images of 17 positions on 4 devices: both the batch and the heads are sharded."""
    model = folder("examples") / "vit_l16.udl"
    settings = {"b": 2}
    out = compile_program(model, devices=4, machine=SLOW, preset="small", settings=settings, mesh=(2, 2))
    text = (out / "model.py").read_text()
    assert "no mesh axis (2) divides 17" in (out / "plan.json").read_text()
    found = re.findall(r"full_attention: (\w+) along \w+, (\w+) along \w+", text)
    assert found and all(set(roles) == {"b", "heads"} for roles in found)
    assert check(out, pool=pool).ok
