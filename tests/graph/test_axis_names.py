"""Mesh axes are named after their role. Tested on pinned plans of the literature for small models."""

from __future__ import annotations

import pytest

from unity_dsl.graph.axis_names import common_name
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.layout_pins import parse_pins
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

MODEL = """
model m[b = 8, s = 4, d = 8]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  repeat 3 as layer
    weight gain: f32[d] ~ ones
    weight bias: f32[d] ~ zeros
    weight up: f32[2 * d, d] ~ normal(0.5)
    weight down: f32[d, 2 * d] ~ normal(0.5)
    n = layer_norm(x, gain, bias)
    h = linear(n, up)
    y = linear(relu(h), down)
    x = x + y
  loss mse(x, target)
"""
EXPERTS = """
model mixture[b = 4, s = 8, d = 8, f = 12, experts = 4, capacity = 3]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight router: f32[experts, d] ~ normal(0.5)
  weight up: f32[experts, f, d] ~ normal(0.3)
  weight down: f32[experts, d, f] ~ normal(0.3)
  scores = linear(x, router)
  chosen = top_k(scores; count=2)
  weights = softmax(gather(scores, chosen; dim=-1))
  places = expert_places(chosen)
  given = dispatch(x, chosen, places; capacity=capacity)
  h = sigmoid(expert_linear(given, up))
  made = expert_linear(h, down)
  y = combine_experts(made, chosen, places, weights)
  loss mse(y, target)
"""
DECODER = """
model decoder[b = 4, c = 8, e = 4]
  input x: f32[b, c, 16, 16]
  input target: f32[b, e, 32, 32]
  weight k1: f32[c, c, 3, 3] ~ kaiming_uniform
  weight k2: f32[c, c, 3, 3] ~ kaiming_uniform
  weight k3: f32[c, e, 2, 2] ~ kaiming_uniform
  h = conv2d(x, k1; pad_h=1, pad_w=1)
  g = conv2d(h, k2; pad_h=1, pad_w=1)
  u = conv_transpose2d(g, k3; stride=2)
  loss mse(u, target)
"""
MEGATRON = "layer.up={0}S0 layer.down={0}S1 layer.h={1}S2 layer.n={1}I layer.y={1}I"


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


def plan(library: Library, degrees: tuple[int, ...], pins: str, text: str, strategy: str = "auto") -> Plan:
    model = build_model(parse_model(Source("m.udl", text.lstrip())), library)
    mesh = Mesh(tuple(MeshAxis("abc"[number], degree) for number, degree in enumerate(degrees)))
    return search(model, mesh, load_machine("dgx-a100"), library, strategy, parse_pins(pins.split()))


@pytest.mark.parametrize(
    ("pins", "names"),
    [
        ("layer.up=I layer.down=I layer.h=S0 layer.y=S0", ["data"]),
        ("layer.up=S0 layer.down=S1 layer.h=S0 layer.y=S0", ["fsdp"]),
        (MEGATRON.format("", ""), ["tensor"]),
        # Megatron's sequence parallelism divides norms along positions, but no matrix product.
        ("layer.up=S0 layer.down=S1 layer.h=S2 layer.n=S1 layer.x=S1", ["tensor"]),
        ("layer.up=I layer.down=I layer.h=S1 layer.y=S1", ["sequence"]),
        (MEGATRON.format("I,", "S0,"), ["data", "tensor"]),
        (MEGATRON.format("S1,", "S0,").replace("down=S1", "down=S0"), ["fsdp", "tensor"]),
        ("layer.up=S0,I layer.down=I,I layer.h=S0,S1 layer.y=S0,S1", ["fsdp", "sequence"]),
        ("layer.up=I,S0 layer.down=I,S0 layer.h=S0,S0 layer.y=S0,S0", ["data", "fsdp"]),
        # The first operator divides the weight, the second one the batch.
        ("layer.up=S0 layer.h=S2 layer.down=I layer.y=S0", ["mixed"]),
        ("layer.up=I,S0 layer.h=S0,S2 layer.down=I,I layer.y=S0,S0", ["data", "mixed"]),
        # Every device repeats the whole computation.
        ("layer.up=I layer.down=I layer.h=I layer.y=I", ["devices"]),
    ],
)
def test_names_of_plans(pins: str, names: list[str], library: Library) -> None:
    degrees = (2,) * len(names)
    assert [axis.name for axis in plan(library, degrees, pins, MODEL).mesh.axes] == names


@pytest.mark.parametrize(
    ("degrees", "names"), [((2, 4), ["data_outer", "data_inner"]), ((2, 2, 2), ["data_0", "data_1", "data_2"])]
)
def test_axes_that_do_the_same_are_told_apart(degrees: tuple[int, ...], names: list[str], library: Library) -> None:
    found = plan(library, degrees, "", MODEL, "data_parallel").mesh
    assert [axis.name for axis in found.axes] == names and found.degrees == degrees
    every = tuple(range(len(names)))
    assert common_name(every, found) == "data"
    assert all(common_name(axes, found) is None for axes in (every[:1], every[::-1]))


def test_other_axes_have_no_common_name() -> None:
    axes = [MeshAxis(name, 2) for name in ("data_outer", "tensor", "data_inner", "a", "b")]
    mesh = Mesh(tuple(axes))
    assert common_name((0, 2), mesh) == "data"
    assert all(common_name(chosen, mesh) is None for chosen in ((0,), (0, 1), (0, 1, 2), (1,), (3, 4)))


def test_experts_lie_where_the_batch_is_divided(library: Library) -> None:
    pins = "scores=S0 given=S1 router=I up=S0 down=S0 made=S0 y=S0"
    assert [axis.name for axis in plan(library, (2,), pins, EXPERTS).mesh.axes] == ["expert"]
    whole = "scores=S0 given=S1 router=I up=I down=I h=S1 made=S1 y=S0"
    assert [axis.name for axis in plan(library, (2,), whole, EXPERTS).mesh.axes] == ["data"]
    # Without routing to experts, it is a product that is divided along an axis of both operands.
    dense = "model m[e = 4, n = 4, d = 8]\n  input x: f32[e, n, d]\n  weight w: f32[e, d, d] ~ normal(1)\n"
    dense += "  loss mse(matmul(x, w), x)\n"
    assert [axis.name for axis in plan(library, (2,), "w=S0", dense).mesh.axes] == ["tensor"]


def test_a_transposed_convolution_counts_by_its_operations(library: Library) -> None:
    """Its loop nest iterates over all pairs of positions of both images, of which the declaration's guard leaves few:
    nine tenths of the operations are those of the convolutions.
    """
    pins = "h=S0 g=S0 k1=S0 k2=S0 k3=S1 u=S1"
    assert [axis.name for axis in plan(library, (2,), pins, DECODER).mesh.axes] == ["fsdp"]
