"""Programs in which a gradient could be counted twice or in part omitted, each compared with its reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool

Compile = Callable[..., Path]

CASES: dict[str, tuple[str, list[str]]] = {
    "weight_invariant_beside_a_divided_activation": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        y = linear(x, w)
        """,
        ["w=I", "y=S0"],
    ),
    "redundant_computation": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        h = relu(linear(x, w))
        y = linear(h, w)
        """,
        ["w=I", "h=I", "y=I"],
    ),
    "redundant_computation_on_copies": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        h = relu(linear(x, w))
        g = h * 2
        y = linear(g, w)
        """,
        ["w=I", "h=R", "g=R", "y=S1"],
    ),
    "redundant_then_divided_weight": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        h = linear(x, w)
        y = linear(h, w)
        """,
        ["w=S0", "h=I", "y=S0"],
    ),
    "bias_beside_a_partial_sum": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        weight c: f32[d] ~ normal(0.3)
        h = linear(x, w)
        y = h + c
        """,
        ["w=S1", "h=P", "c=I", "y=I"],
    ),
    "sum_of_partial_sums": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        weight v: f32[d, d] ~ normal(0.3)
        h = linear(x, w)
        g = linear(x, v)
        f = h + g
        y = relu(f)
        """,
        ["w=S1", "h=P", "g=P", "f=P", "y=I"],
    ),
    "shared_replicate": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        weight u: f32[d, d] ~ normal(0.3)
        weight v: f32[d, d] ~ normal(0.3)
        e = linear(x, w)
        q = linear(e, u)
        k = linear(e, v)
        y = q * k
        """,
        ["w=I", "e=I", "u=S0", "v=S0", "q=S1", "k=S1", "y=S1"],
    ),
    "tied_weights_of_different_layouts": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        h = linear(x, w)
        y = linear(h, w)
        """,
        ["w=S0", "h=S1", "y=S0"],
    ),
    "normalised_along_a_divided_axis": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        weight gain: f32[d] ~ normal(1.0)
        weight bias: f32[d] ~ normal(1.0)
        h = linear(x, w)
        y = layer_norm(h, gain, bias)
        """,
        ["w=S0", "h=S1", "y=S1", "gain=S0", "bias=I"],
    ),
    "softmax_along_a_divided_axis": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        h = linear(x, w)
        y = softmax(h)
        """,
        ["w=S0", "h=S1", "y=S1"],
    ),
    "mean_over_a_divided_batch": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        h = linear(x, w)
        m = reduce_mean(h[b, d] -> [d])
        y = h - m
        """,
        ["w=I", "h=S0", "y=S0"],
    ),
    "dropout_on_slices": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        h = linear(x, w)
        y = dropout(h; p=0.5)
        """,
        ["w=I", "h=S0", "y=S0"],
    ),
    "dropout_of_a_partial_sum": (
        """
        weight w: f32[d, d] ~ normal(0.3)
        h = linear(x, w)
        y = dropout(h; p=0.5)
        """,
        ["w=S1", "h=P", "y=P"],
    ),
}

TEMPLATE = """model case[b = 8, d = 16]
  input x: f32[b, d]
  input target: f32[b, d]
{body}
  loss mse(y, target)
"""


def model_text(body: str) -> str:
    lines = [line.strip() for line in body.strip().splitlines()]
    return TEMPLATE.format(body="\n".join(f"  {line}" for line in lines))


@pytest.mark.a_day(10)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_gradient_is_counted_once(name: str, ranks: int, compile_program: Compile, pool: RankPool) -> None:
    body, pins = CASES[name]
    report = check(compile_program(model_text(body), devices=ranks, pins=pins), pool=pool)
    assert not report.recompiled
    assert report.ok, report


CLASSES = """model classes[b = 8, d = 16, v = 32]
  input ids: int<v>[b]
  input target: int<v>[b]
  weight table: f32[v, d] ~ normal(0.3)
  h = embedding(ids, table)
  g = relu(h)
  logits = linear(g, table)
  loss cross_entropy(logits, target)
"""


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    "pins",
    [
        ["table=S0", "h=P", "g=I", "logits=S1"],
        ["table=S1", "h=S1", "g=S1", "logits=P"],
        ["table=S0", "h=S0", "g=S0", "logits=S0"],
        ["table=I", "h=S0", "g=S0", "logits=S0"],
        ["table=I", "h=I", "g=I", "logits=S1"],
    ],
    ids=",".join,
)
def test_tied_table_and_divided_classes(pins: list[str], ranks: int, compile_program: Compile, pool: RankPool) -> None:
    report = check(compile_program(CLASSES, devices=ranks, pins=pins), pool=pool)
    assert report.ok, report
