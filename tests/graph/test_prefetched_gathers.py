"""Which gathers of weights are prefetched, depending on where operators read the weights."""

from __future__ import annotations

from unity_dsl.graph.graph import Graph, Value
from unity_dsl.graph.layout import Invariant, Layout, Replicate, Shard
from unity_dsl.graph.prefetched_gathers import Prefetch, PrefetchedGathers, prefetched_gathers

from .test_model_graph import build

MODEL = """model m[n = 1]
  input x: f32[64, 64]
  input target: f32[64, 64]
  weight first: f32[64, 64] ~ normal(0.1)
  v = linear(x, first)
  repeat 4 as layer
    weight own: f32[64, 64] ~ normal(0.1)
    weight twice: f32[64, 64] ~ normal(0.1)
    v = relu(linear(linear(linear(v, own), twice), twice))
    repeat 2 as inner
      weight w: f32[64, 64] ~ normal(0.1)
      v = linear(v, w)
    weight late: f32[64, 64] ~ normal(0.1)
    v = linear(v, late)
  repeat 1 as once
    weight w: f32[64, 64] ~ normal(0.1)
    v = linear(v, w)
  weight head: f32[64, 64] ~ normal(0.1)
  loss mse(linear(v, head), target)
"""


def weights(graph: Graph, path: str = "") -> dict[str, Value]:
    found = {path + stored.value.name: stored.value for stored in graph.weights}
    for segment in graph.segments:
        found |= weights(segment.body, f"{path}{segment.name}.")
    return found


def test_what_is_read_first_in_an_iteration_or_behind_a_loop() -> None:
    graph = build(MODEL).graph
    layer, once = graph.segments
    assert prefetched_gathers(graph, 1) == {}, "a repeat of one iteration is no loop to wait for"
    assert prefetched_gathers(layer.body, 4) == {"own": Prefetch.ITERATION, "late": Prefetch.LOOP}
    assert prefetched_gathers(layer.body, 1) == {"late": Prefetch.LOOP}
    assert prefetched_gathers(once.body, 1) == {}


def test_behind_a_loop_only_with_a_sum_of_gradients() -> None:
    """Behind a loop, a gather is prefetched if gradients of the weight are summed. If every device repeats the same
    computation, it is not.
    """
    graph = build(MODEL).graph
    sliced, summed, same = Layout((Shard(0),)), Layout((Replicate(),)), Layout((Invariant(),))
    begun = {
        name: (
            PrefetchedGathers(graph).begins(value, sliced, summed),
            PrefetchedGathers(graph).begins(value, sliced, same),
        )
        for name, value in weights(graph).items()
    }
    assert begun == {
        "first": (False, False),
        "layer.own": (True, True),
        "layer.twice": (False, False),
        "layer.inner.w": (True, True),
        "layer.late": (True, False),
        "once.w": (False, False),
        "head": (False, False),
    }
