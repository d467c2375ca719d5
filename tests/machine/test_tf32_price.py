"""Operators in TF32: products at its peak or its own measurements, everything else as in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.graph.graph import Model, Node
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.layout_typing import TypedOperator, type_operator
from unity_dsl.graph.model_flops import model_flops, seconds_at_peak
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.precision import priced_type
from unity_dsl.index.cost.lowering_class import LoweringClass
from unity_dsl.index.cost.work import backward_work, work
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import Machine, load_machine, read_machine
from unity_dsl.machine.measured_curves import ProductGrid
from unity_dsl.machine.measured_operators import Direction, GridKey, MeasuredOperators
from unity_dsl.machine.operator_price import Limit, limits_of_operator, price_operator
from unity_dsl.machine.operator_price import price_operators as priced
from unity_dsl.resources import folder
from unity_dsl.search.choices.operator_options import price_node
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
ALONE = Mesh(())
A100 = replace(load_machine("dgx-a100"), launch_seconds=0.0, measured=MeasuredOperators())
MODEL = """
model m[b = 64, c = 256, s = 32, heads = 16, e = 64]
  input x: f32[b, c, 32, 32]
  input q: f32[b, heads, s, e]
  input target: f32[b, c]
  weight k: f32[c, c, 3, 3] ~ normal(0.1)
  weight thin: f32[c, 1, 3, 3] ~ normal(0.1)
  weight w: f32[c, c] ~ normal(0.1)
  y = relu(conv2d(x, k; pad_h = 1, pad_w = 1))
  z = conv2d(y, thin; pad_h = 1, pad_w = 1, groups = c)
  a = full_attention(q, q, q)
  pooled = avg_pool2d(z; size = 2, stride = 2)
  h = linear(global_avg_pool2d(pooled), w)
  loss mse(softmax(h), target) + reduce_mean(a[b, heads, s, e] -> [])
"""


def build(precision: str) -> Model:
    return build_model(parse_model(Source("m.udl", MODEL.lstrip())), LIBRARY, precision=precision)


def nodes(model: Model) -> dict[str, Node]:
    return {node.instance.name: node for node in model.graph.nodes()}


def typed(node: Node, native: bool = True) -> TypedOperator:
    found = type_operator(node.instance, (), ALONE, LIBRARY)
    assert isinstance(found, TypedOperator)
    return replace(found, native=native)


def seconds(node: Node, machine: Machine, native: bool = True) -> float:
    return float(price_node(node, [typed(node, native)], ALONE, machine, LIBRARY)[0])


def test_what_torch_runs_in_tf32_is_priced_in_it() -> None:
    """Native attention and depthwise convolutions have kernels in float32. As statements, attention is two TF32
    products.
    """
    rounded, full = build("tf32"), build("f32")
    types: dict[str, list[tuple[str, str]]] = {}
    for node, other in zip(rounded.graph.nodes(), full.graph.nodes(), strict=True):
        native, stated = (priced_type(node, called, LIBRARY) for called in (True, False))
        types.setdefault(node.instance.name, []).append((native, stated))
        assert (seconds(node, A100) == seconds(other, A100)) == (native == "f32"), node.name
        assert priced_type(other, True, LIBRARY) == priced_type(other, False, LIBRARY) == "f32"
    assert types.pop("linear") == [("tf32", "tf32")]
    assert types.pop("conv2d") == [("tf32", "tf32"), ("f32", "tf32")]
    assert types.pop("full_attention") == [("f32", "tf32")]
    assert {*types} >= {"relu", "softmax", "avg_pool2d", "mse"} and {*map(tuple, types.values())} == {(("f32", "f32"),)}


def test_a_convolution_is_at_the_peak_forward_and_backward() -> None:
    conv = next(node for node in build("tf32").graph.nodes() if node.instance.name == "conv2d")
    forward = 2 * 64 * 256 * 256 * 32 * 32 * 9 / (156e12 * A100.compute_efficiency)
    given = conv.instance, typed(conv), "tf32", ALONE, A100
    assert price_operator(*given, (False, False), LIBRARY) == pytest.approx(forward, rel=1e-6)
    assert price_operator(*given, (False, True), LIBRARY) == pytest.approx(2 * forward, rel=0.15)
    assert price_operator(*given, (True, True), LIBRARY) == pytest.approx(3 * forward, rel=0.15)
    assert limits_of_operator(*given, (True, True), LIBRARY) == (Limit.ARITHMETIC, Limit.ARITHMETIC)


def test_what_is_elementwise_beside_products_is_as_in_float32() -> None:
    """Attention by statements, with negligible memory traffic: products at the peak of TF32, softmax at that of
    float32.
    """
    node = nodes(build("tf32"))["full_attention"]
    fast = replace(A100, memory_bandwidth=1e30)
    products = 2 * 2 * 64 * 16 * 32 * 32 * 64
    for needs, times in (((False,) * 3, 1), ((True,) * 3, 3)):
        flops = work(node.instance).flops + (backward_work(node.instance, needs).flops if any(needs) else 0)
        expected = times * products / 156e12 + (flops - times * products) / 19.5e12
        found = price_operator(node.instance, typed(node, False), "tf32", ALONE, fast, needs, LIBRARY)
        assert found == pytest.approx(expected / A100.compute_efficiency, rel=1e-6)


def test_curves_of_float32_are_not_of_tf32() -> None:
    """Measured float32 products do not apply to TF32: it uses the roofline, unless TF32 products are
    measured as well.
    """
    linear = nodes(build("tf32"))["linear"]

    def grid(microseconds: float) -> ProductGrid:
        import numpy as np

        return ProductGrid((64.0,), (256.0,), (256.0,), np.full((1, 1, 1), microseconds * 1e-6))

    def known(*types: str) -> Machine:
        grids = {
            GridKey(LoweringClass.CONTRACTION, dtype, direction, False): grid(100.0 if dtype == "f32" else 10.0)
            for dtype in types
            for direction in (Direction.FORWARD, Direction.LEFT, Direction.RIGHT)
        }
        return replace(A100, measured=MeasuredOperators(grids=grids))

    assert seconds(linear, known("f32")) == seconds(linear, A100)
    assert seconds(linear, known("f32", "tf32")) == pytest.approx(30e-6)
    assert seconds(nodes(build("f32"))["linear"], known("f32", "tf32")) == pytest.approx(300e-6)


def test_a_file_without_the_peak_multiplies_in_float32() -> None:
    text = (folder("machines") / "dgx-a100.toml").read_text().partition("\n# Derived")[0]
    assert read_machine(Source("m.toml", text)).peak["tf32"] == 156e12
    old = read_machine(Source("m.toml", text.replace("tf32 = 156\n", "")))
    assert old.peak["tf32"] == old.peak["f32"] == load_machine("dgx-a100").peak["f32"]
    assert load_machine("summit").peak["tf32"] == load_machine("summit").peak["f32"]
    for name in ("dgx-h100", "h200", "llama3-cluster"):
        assert load_machine(name).peak["tf32"] == 494.7e12
    for node in build("tf32").graph.nodes():
        full = next(other for other in build("f32").graph.nodes() if other.name == node.name)
        assert seconds(node, old) == pytest.approx(seconds(full, old), rel=1e-12)


def test_utilisation_is_of_the_peak_of_tf32() -> None:
    flops = model_flops(build("tf32"))
    assert flops.keys() == {"tf32"} and flops["tf32"] == model_flops(build("f32"))["f32"]
    assert seconds_at_peak(build("tf32"), A100.peak, 2) == flops["tf32"] / 156e12 / 2


def test_many_configurations_are_priced_as_one() -> None:
    conv = next(node for node in build("tf32").graph.nodes() if node.instance.name == "conv2d")
    both = [typed(conv), typed(conv, False)]
    found = priced(conv.instance, both, "tf32", ALONE, A100, (True, True), LIBRARY)
    assert found.tolist() == [
        price_operator(conv.instance, one, "tf32", ALONE, A100, (True, True), LIBRARY) for one in both
    ]
