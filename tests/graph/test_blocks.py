"""Blocks that are called in expressions: what they compute, and what their weights are called."""

from __future__ import annotations

import numpy as np
import pytest

from .evaluation import evaluate_model
from .test_model_graph import LIBRARY, body, build, fault, operators

IN_EXPRESSIONS = """
    block norm(x)
      weight gain: f32[d] ~ normal(0.5)
      return x * gain

    block mix(x)
      weight w: f32[d, d] ~ normal(0.5)
      return linear(norm(x), w)

    block halves(x)
      return split(norm(x); dim=-1, parts=2)

    model nested[b = 2, d = 4]
      input x: f32[b, d]
      repeat 2 as layer
        x = x + mix(norm(x))
        x = x + 2 * tanh(mix(norm(x)))
      left, right = halves(x)
      y = concat(left, right; dim=-1) - norm(x)[b, (h=2 e)] -> [b, (e h)]
      loss mse(mix(y), norm(y))
      output tanh(y) as squashed
"""


def test_blocks_in_expressions_name_their_weights_after_themselves() -> None:
    """Covers operands of operators, blocks and views, a return and a loss. `norm_2` is a second call."""
    per_layer = ["norm.gain", "mix.w", "mix.norm.gain", "norm_2.gain", "mix_2.w", "mix_2.norm.gain"]
    names = [name for name, _ in build(IN_EXPRESSIONS).weights()]
    outside = ["left.norm.gain", "norm.gain", "mix.w", "mix.norm.gain", "norm_2.gain"]
    assert names == [*outside, *(f"layer.{i}.{name}" for i in range(2) for name in per_layer)]


def test_blocks_in_expressions_compute_what_they_say() -> None:
    random = np.random.default_rng(1)
    model = build(IN_EXPRESSIONS)
    stored = {name: random.standard_normal(weight.value.shape) for name, weight in model.weights()}
    start = x = random.standard_normal((2, 4))

    def mix(path: str, x: np.ndarray) -> np.ndarray:
        return (x * stored[f"{path}.norm.gain"]) @ stored[f"{path}.w"].T

    for i in range(2):
        x = x + mix(f"layer.{i}.mix", x * stored[f"layer.{i}.norm.gain"])
        x = x + 2 * np.tanh(mix(f"layer.{i}.mix_2", x * stored[f"layer.{i}.norm_2.gain"]))
    normed = (x * stored["norm.gain"]).reshape(2, 2, 2).transpose(0, 2, 1).reshape(2, 4)
    y = x * stored["left.norm.gain"] - normed
    found = evaluate_model(model, LIBRARY, {"x": start}, stored)
    np.testing.assert_allclose(found.outputs["squashed"], np.tanh(y), rtol=1e-12)
    assert found.loss == pytest.approx(((mix("mix", y) - y * stored["norm_2.gain"]) ** 2).mean(), rel=1e-12)


def test_the_name_of_a_block_in_an_expression_is_no_name_of_the_text() -> None:
    text = IN_EXPRESSIONS.replace("left, right = halves(x)", "norm = x * 1\n      left, right = halves(norm)")
    names = [name for name, _ in build(text).weights()]
    assert names[:5] == ["left.norm.gain", "norm_2.gain", "mix.w", "mix.norm.gain", "norm_3.gain"]


def test_blocks_in_expressions_nest_no_deeper_than_can_be_written_out() -> None:
    def nested(blocks: int) -> str:
        first = "block f0(x)\n  return relu(x)\n"
        calls = f"{'relu(' * 60}f{{}}(x){')' * 60}"
        rest = [f"block f{i}(x)\n  return {calls.format(i - 1)}\n" for i in range(1, blocks)]
        return "\n".join([first, *rest, body(f"y = f{blocks - 1}(x)")])

    assert len(operators(build(nested(4)).graph)) == 3 * 60 + 3
    assert fault(nested(5)) == "E226"


def test_a_block_of_several_results_is_assigned_first() -> None:
    text = IN_EXPRESSIONS.replace("left, right = halves(x)", "left = halves(x)\n      right = left")
    assert fault(text) == "E212"
    assert fault(IN_EXPRESSIONS.replace("tanh(y)", "tanh(halves(y))")) == "E212"
