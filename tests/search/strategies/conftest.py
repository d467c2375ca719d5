"""Small models with dimensions worth dividing, and the space in which a strategy plans them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.search_context import SearchContext
from unity_dsl.search.strategies.strategy import Space
from unity_dsl.search.strategy_space import space_of

CHAIN = """
model chain[b = 64, d = 512, h = 2048]
  input x: f32[b, d]
  input target: f32[b, d]
  weight up: f32[h, d] ~ normal(0.1)
  weight down: f32[d, h] ~ normal(0.1)
  y = linear(relu(linear(x, up)), down)
  loss mse(y, target)
"""
TRANSFORMER = """
model decoder[b = 8, s = 64, d = 256, heads = 8, layers = 3, vocabulary = 1024]
  input tokens: int<vocabulary>[b, s]
  input target: int<vocabulary>[b, s]
  weight table: f32[vocabulary, d] ~ normal(0.1)
  weight head: f32[vocabulary, d] ~ normal(0.1)
  x = embedding(tokens, table)
  repeat layers as layer
    weight gain: f32[d] ~ ones
    weight qkv: f32[3, heads, d / heads, d] ~ normal(0.1)
    weight out: f32[d, d] ~ normal(0.1)
    weight up: f32[4 * d, d] ~ normal(0.1)
    weight down: f32[d, 4 * d] ~ normal(0.1)
    q, k, v = split(project(rms_norm(x, gain), qkv); dim=2, parts=3)
    scores = softmax(matmul(q[b, s, 1, h, e] -> [b, h, s, e], k[b, t, 1, h, e] -> [b, h, e, t]))
    mixed = matmul(scores, v[b, t, 1, h, e] -> [b, h, t, e])
    x = x + linear(mixed[b, h, s, e] -> [b, s, (h e)], out)
    x = x + linear(relu(linear(x, up)), down)
  logits = linear(x, head)
  loss cross_entropy(logits, target)
"""
CONVOLUTIONS = """
model picture[b = 8, classes = 16]
  input images: f32[b, 3, 16, 16]
  input target: int<classes>[b]
  weight first: f32[8, 3, 3, 3] ~ normal(0.1)
  weight dense: f32[64, 2048] ~ normal(0.1)
  weight head: f32[classes, 64] ~ normal(0.1)
  x = relu(conv2d(images, first; pad_h=1, pad_w=1))
  h = relu(linear(x[n, c, p, q] -> [n, (c p q)], dense))
  logits = linear(h, head)
  loss cross_entropy(logits, target)
"""
TABLES = """
model clicks[b = 16, rows = 4096, d = 16]
  input ids1: int<rows>[b, 1]
  input ids2: int<rows>[b, 1]
  input target: f32[b, 1]
  weight table1: f32[rows, d] ~ normal(0.1)
  weight table2: f32[rows, d] ~ normal(0.1)
  weight top: f32[1, 2 * d] ~ normal(0.1)
  x = concat(embedding(ids1, table1), embedding(ids2, table2); dim=2)
  y = linear(x[b, 1, k] -> [b, k], top)
  loss mse(y, target)
"""

MakeSpace = Callable[..., Space]


@pytest.fixture(scope="session")
def space(library: Library) -> MakeSpace:
    """The space of a model on a machine: on the mesh of the given shape, or on the given meshes of a strategy."""

    def make(
        model: Model,
        strategy: str,
        shape: tuple[int, ...] | None = None,
        meshes: tuple[Mesh, ...] = (),
        machine: str = "dgx-a100",
    ) -> Space:
        hardware = load_machine(machine)
        every = meshes or (build_mesh(hardware, _product(shape or ()), shape),)
        theorems = ShardingTheorems(library)
        context = SearchContext(hardware, library, theorems, strategy, {}, model.gradient_bytes)
        return space_of(model, every, context, ())

    return make


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for degree in shape:
        size *= degree
    return size
