"""Model FLOPs against the formulas of the literature. They do not depend on what a plan fuses or divides."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.graph import Model
from unity_dsl.graph.model_flops import model_flops, seconds_at_peak
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

LIBRARY = load_library()


def example(name: str, preset: str | None = None) -> Model:
    return build_model(parse_model(read_source(path(name))), LIBRARY, {}, preset)


def path(name: str) -> Path:
    return folder("examples") / f"{name}.udl"


def model(lines: str) -> Model:
    text = f"model m[b = 4, d = 8, h = 16]\n  input x: f32[b, d]\n  input target: f32[b, h]\n{lines}"
    return build_model(parse_model(Source("m.udl", text)), LIBRARY)


@pytest.mark.parametrize(
    ("name", "parameters", "embedded"),
    [("gpt2", 124_439_808, 1024 * 768), ("gpt3_175b", 174_604_259_328, 2048 * 12288), ("llama3_8b", 8_030_261_248, 0)],
)
def test_a_transformer_takes_what_palm_counts(name: str, parameters: int, embedded: int) -> None:
    """PaLM, appendix B: 6 N + 12 L H Q T operations a token. N excludes tables that are only looked up."""
    found = example(name)
    sizes = found.parameters
    looked_up = embedded or sizes["vocabulary"] * sizes["d"]
    tokens = sizes["b"] * sizes["s"]
    attention = 12 * sizes["layers"] * sizes["d"] * sizes["s"]
    expected = tokens * (6 * (parameters - looked_up) + attention)
    assert model_flops(found) == {"bf16": pytest.approx(expected, rel=2e-3)}


def test_a_convolution_of_an_input_has_no_gradient_of_it() -> None:
    """ResNeXt-50: 4.23 GMAC a sample forward. A step takes three times as much, except for the first convolution."""
    found = example("resnext50")
    first = 2 * 64 * 3 * 7 * 7 * 112 * 112
    expected = found.parameters["b"] * (3 * 2 * 4.23e9 - first)
    assert model_flops(found) == {"f32": pytest.approx(expected, rel=2e-3)}


def test_each_factor_with_a_gradient_takes_another_product() -> None:
    """By hand: two products of weights, the first of which reads an input. Nothing else counts."""
    one = "  weight w: f32[h, d] ~ normal(0.1)\n  y = relu(linear(x, w))\n"
    two = "  weight v: f32[h, h] ~ normal(0.1)\n  y = linear(softmax(y), v)\n"
    loss = "  loss mse(y, target)\n"
    first, second = 2 * 4 * 8 * 16, 2 * 4 * 16 * 16
    assert model_flops(model(one + loss)) == {"f32": 2 * first}
    assert model_flops(model(one + two + loss)) == {"f32": 2 * first + 3 * second}


def test_without_a_loss_it_is_one_call() -> None:
    text = (
        "model m[b = 4, d = 8]\n  input x: f32[b, d]\n  weight w: f32[d, d] ~ normal(0.1)\n  output linear(x, w) as y\n"
    )
    assert model_flops(build_model(parse_model(Source("m.udl", text)), LIBRARY)) == {"f32": 2 * 4 * 8 * 8}


def test_loops_count_as_often_as_they_are_executed() -> None:
    body = "    weight w: f32[d, d] ~ normal(0.1)\n    x = linear(x, w)\n"
    head = "model m[b = 4, d = 8]\n  input x: f32[b, d]\n  input gate: int<2>[]\n  input target: f32[b, d]\n"
    start = "  weight u: f32[d, d] ~ normal(0.1)\n  x = linear(x, u)\n"
    end = "  loss mse(x, target)\n"
    one = 2 * 4 * 8 * 8
    for loop, times in (
        ("repeat 5 as layer", 5.0),
        ("cond gate expect 0.25 as skip", 0.25),
        ("cond gate as skip", 1.0),
    ):
        used = head if "gate" in loop else head.replace("  input gate: int<2>[]\n", "")
        found = build_model(parse_model(Source("m.udl", f"{used}{start}  {loop}\n{body}{end}")), LIBRARY)
        assert model_flops(found) == {"f32": pytest.approx(2 * one + times * 3 * one)}


@pytest.mark.parametrize("name", ["gpt2", "llama3_8b", "bert_large", "mixtral_8x7b"])
def test_neither_rules_nor_division_change_them(name: str) -> None:
    settings = {"dropout": 0} if name in ("gpt2", "bert_large") else {}
    request = Request(path(name), settings, preset="small", devices=2, strategy="random:2")
    plan = compile_model(request).plan
    assert plan.rules
    assert model_flops(plan.model) == model_flops(example(name, "small"))


def test_each_type_has_its_own_peak() -> None:
    found = model("  weight w: f32[h, d] ~ normal(0.1)\n  loss mse(linear(x, w), target)\n")
    assert seconds_at_peak(found, {"f32": 100.0}, 4) == 2 * 2 * 4 * 8 * 16 / 100 / 4
