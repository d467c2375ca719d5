"""Axes that operators share: which dimensions have them, what they consist of, and which have a fixed size."""

from __future__ import annotations

import pytest

from unity_dsl.graph.graph import Model
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.shared_axes import SharedAxes, shared_axes
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

ATTENTION = """
model attention[b = 6, s = 5, d = 12, heads = 3, p = 0, classes = 7]
  input tokens: int<classes>[b, s]
  input target: int<classes>[b, s]
  weight table: f32[classes, d] ~ normal(0.5)
  weight q: f32[heads, d / heads, d] ~ normal(0.5)
  weight fused: f32[2 * d, d] ~ normal(0.5)
  weight out: f32[d, d] ~ normal(0.5)
  x = embedding(tokens, table)
  k, v = split(linear(x, fused); dim=2, parts=2)
  k = k[b, t, (h=heads e)] -> [b, h, e, t]
  v = v[b, t, (h=heads e)] -> [b, h, t, e]
  scores = dropout(softmax(matmul(project(x, q)[b, s, h, e] -> [b, h, s, e], k)); p=p)
  y = linear(matmul(scores, v)[b, h, s, e] -> [b, s, (h e)], out)
  loss cross_entropy(linear(y, table), target)
"""


def model_of(text: str, **settings: float) -> Model:
    return build_model(parse_model(Source("model.udl", text)), library_of(library_sources(())), settings)


def places(shared: SharedAxes, path: str, dim: int) -> set[str]:
    """The dimensions that start with the same axis."""
    (axis, *_) = shared.of_dimension(path, dim)
    return {
        f"{other}:{number}"
        for other in shared.stored
        for number in range(len(shared.tensors[other]))
        if shared.of_dimension(other, number)[:1] == (axis,)
    }


def test_an_axis_is_one_wherever_operators_read_it() -> None:
    shared = shared_axes(model_of(ATTENTION))
    assert places(shared, "table", 0) == {"table:0"}, "the range of the tokens is no dimension"
    assert places(shared, "tokens", 0) == {"tokens:0", "target:0"}
    assert places(shared, "table", 1) == {"table:1", "q:2", "fused:1", "out:0"}
    assert places(shared, "q", 0) == {"q:0", "out:1"}
    assert [leaf.size for leaf in shared.of_dimension("out", 1)] == [3, 4]
    assert [leaf.size for leaf in shared.of_dimension("fused", 0)] == [24], "slices are taken of it"


@pytest.mark.parametrize(
    ("path", "dim", "settings", "reason"),
    [
        ("q", 0, {}, "`slice` reads other positions than its own along it"),
        ("fused", 0, {}, "`slice` reads other positions than its own along it"),
    ],
)
def test_what_keeps_its_size_says_why(path: str, dim: int, settings: dict[str, float], reason: str) -> None:
    shared = shared_axes(model_of(ATTENTION, **settings))
    assert shared.of_dimension(path, dim)[0].fixed == reason


def test_conditions_and_scans_fix_sizes() -> None:
    text = """
model scanned[b = 2, t = 3, d = 4]
  input x: f32[b, t, d]
  weight w: f32[4, d, d] ~ normal(0.5)
  h = start_state(x; size=d)
  c = start_state(x; size=d)
  scan x_t in x along 1 as step
    c, h = lstm_cell(project(x_t, w) + project(h, w), c)
  loss mse(h, c)
"""
    shared = shared_axes(model_of(text))
    assert shared.of_dimension("x", 1)[0].fixed == "a scan goes over it in `step`"
    assert shared.of_dimension("w", 0)[0].fixed == "`lstm_cell` reads other positions than its own along it"
    assert shared.of_dimension("w", 1)[0].fixed == "a condition of `start_state` gives its size"
    assert not shared.of_dimension("x", 0)[0].fixed
