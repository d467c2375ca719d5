"""Which weight gradients are deferred to overlap with the communication of which gradients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.graph.deferred_gradients import DeferredGradients, deferred_gradients, defers_gradients, weight_product
from unity_dsl.graph.plan import PlannedGraph, PlannedNode, PlannedSegment

MODEL = """model two[b = 8, d = 8, e = 16]
  input x: f32[b, d]
  input target: f32[b, d]
  weight first: f32[d, d] ~ normal(0.5)
  h = linear(x, first)
  weight a: f32[e, d] ~ normal(0.5)
  weight v: f32[e, d] ~ normal(0.5)
  weight c: f32[d, e] ~ normal(0.5)
  m = tanh(h)
  g = linear(m, a)
  u = sigmoid(linear(m, v)) * g
  h = linear(u, c)
  repeat 2 as layer
    weight w: f32[d, d] ~ normal(0.5)
    h = relu(linear(h, w))
  weight head: f32[d, d] ~ normal(0.5)
  n = tanh(h)
  y = linear(n, head)
  loss mse(y, target)
"""
MEGATRON = ("first=I", "h=I", "m=I", "a=S0", "v=S0", "c=S1", "g=S1", "u=S1", "layer.*=I", "n=I", "head=S0", "y=S1")


def compiled(text: str, folder: Path, **choices: Any) -> Compilation:
    (folder / "model.udl").write_text(text)
    return compile_model(Request(folder / "model.udl", **choices))


def of(found: Compilation, graph: PlannedGraph) -> DeferredGradients:
    return deferred_gradients(graph, found.plan.conversions, found.plan.mesh, found.library)


def test_products_in_front_of_a_body_are_delayed_up_to_what_they_read(tmp_path: Path) -> None:
    """Not the first product, whose operand has no gradient, nor products of a repeat without communication."""
    found = compiled(MODEL, tmp_path, devices=2, pins=MEGATRON)
    deferred = of(found, found.plan.graph)
    names = {value: [product.step.node.name for product in products] for (value, _), products in deferred.items()}
    assert names == {"m": ["g", "linear_1", "h_1"], "n": ["y"]}, found.plan.graph
    assert defers_gradients(found.plan, found.library)
    single = compiled(MODEL, tmp_path)
    assert not defers_gradients(single.plan, single.library)


def bodies(graph: PlannedGraph) -> Iterator[PlannedGraph]:
    yield graph
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                yield from bodies(run.body)


@pytest.mark.parametrize("seed", range(6))
def test_no_product_waits_for_a_body_or_another_use(seed: int, tmp_path: Path) -> None:
    """Each product is deferred once, to the conversion of an earlier value, with no body between the two."""
    found = compiled(MODEL, tmp_path, devices=4, mesh=(2, 2), strategy=f"random:{seed}")
    for graph in bodies(found.plan.graph):
        deferred = of(found, graph)
        places = {step.node.name: number for number, step in enumerate(graph.steps) if isinstance(step, PlannedNode)}
        made = {value.name: number for number, step in enumerate(graph.graph.steps) for value in step.makes}
        products = [product for products in deferred.values() for product in products]
        assert len({product.step.node.name for product in products}) == len(products)
        for (value, layout), some in deferred.items():
            assert layout != graph.values[value].produced
            for product in some:
                end = places[product.step.node.name]
                between = graph.steps[made.get(value, -1) + 1 : end]
                assert made.get(value, -1) < end
                assert all(isinstance(step, PlannedNode) for step in between)
                assert product.step.node.arguments[product.weight].is_weight


PRODUCTS = """model products[b = 4, s = 4, d = 4]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight a: f32[d, d] ~ normal(0.5)
  weight v: f32[d, d] ~ normal(0.5)
  weight bias: f32[d] ~ normal(0.5)
  weight e: f32[b, d, d] ~ normal(0.5)
  weight gain: f32[d] ~ ones
  first = linear(x, a)
  second = linear(first, v) + bias
  third = expert_linear(second, e)
  fourth = matmul(third, second[b, s, d] -> [b, d, s])
  fifth = matmul(fourth, third)
  sixth = rms_norm(fifth, gain)
  loss mse(sixth, target)
"""


def test_products_with_weights_are_found(tmp_path: Path) -> None:
    """Products with and without a bias. Not a product of an input (one gradient), a product of two values (no weight),
    or a norm.
    """
    found = compiled(PRODUCTS, tmp_path, shipped_rules=False)
    plan = found.plan
    products = {step.node.name: weight_product(step, plan.mesh, found.library) for step in plan.graph.nodes()}
    known = {name: (product.weight, product.function) for name, product in products.items() if product is not None}
    assert known == {"linear_1": (1, "linear"), "third": (1, "einsum")}
