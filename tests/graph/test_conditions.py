"""Conditional lines of blocks: which block a condition on its numbers leaves, and which weights it has."""

from __future__ import annotations

import pytest

from .test_model_graph import build

RESIDUAL = """
    block narrow[inputs, outputs, expand = 2, stride = 1](x)
      h = x
      if expand != 1
        weight w: f32[inputs * expand, inputs] ~ normal(0.5)
        h = relu(linear(h, w))
      weight down: f32[outputs, inputs * expand] ~ normal(0.5)
      y = linear(h, down)
      if stride == 1, inputs == outputs
        y = x + y
      else
        if stride > 2
          repeat stride as turn
            weight gain: f32[outputs] ~ ones
            y = y * gain
      return y

    model net[b = 2, d = 4, expand = {expand}, stride = {stride}, outputs = {outputs}]
      input x: f32[b, d]
      h = narrow[inputs=d, outputs=outputs, expand=expand, stride=stride](x)
      if outputs <= 4, outputs >= 4
        loss_of = mse(h, x)
      else
        loss_of = mse(h, h * 2)
      loss loss_of
      output h
"""
WRITTEN = """
    model net[b = 2, d = 4]
      input x: f32[b, d]
      {lines}
      loss mse(h, {target})
      output h
"""
CASES = {
    (2, 1, 4): "x + linear(relu(linear(x, w)), down)",
    (1, 1, 4): "x + linear(x, down)",
    (1, 2, 4): "linear(x, down)",
    (2, 1, 5): "linear(relu(linear(x, w)), down)",
}


@pytest.mark.parametrize(("expand", "stride", "outputs"), CASES)
def test_a_block_is_what_its_numbers_leave_of_it(expand: int, stride: int, outputs: int) -> None:
    model = build(RESIDUAL.format(expand=expand, stride=stride, outputs=outputs))
    lines = [f"weight down: f32[{outputs}, {4 * expand}] ~ normal(0.5)"]
    if expand > 1:
        lines.insert(0, f"weight w: f32[{4 * expand}, 4] ~ normal(0.5)")
    lines.append(f"h = {CASES[expand, stride, outputs]}")
    target = "x" if outputs == 4 else "h * 2"
    written = build(WRITTEN.format(lines="\n      ".join(lines), target=target))
    assert [name.removeprefix("h.") for name, _ in model.weights()] == [name for name, _ in written.weights()]
    operators = [[node.instance.name for node in one.graph.nodes()] for one in (model, written)]
    assert operators[0] == operators[1]


def test_a_body_in_a_branch_repeats_and_declares() -> None:
    model = build(RESIDUAL.format(expand=1, stride=3, outputs=4))
    assert [name for name, _ in model.weights()] == ["h.down", *(f"h.turn.{number}.gain" for number in range(3))]


def test_a_tensor_of_a_block_may_be_called_as_a_parameter_of_the_model() -> None:
    text = """
        block scaled[d](x)
          weight scale: f32[d] ~ normal(0.5)
          return x * scale

        model hidden[b = 2, d = 4, scale = 3]
          input x: f32[b, d]
          y = scaled[d=d](x)
          loss mse(y * scale, y)
    """
    model = build(text)
    assert [name for name, _ in model.weights()] == ["y.scale"]
    assert [node.instance.name for node in model.graph.nodes()] == ["mul", "scale", "mse"]
