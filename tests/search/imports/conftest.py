"""Models, and plan files for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Compilation, Request, compile_model

LAYERS = """\
model layers[b = 16, d = 32, classes = 8, n = 4]
  input x: f32[b, d]
  input target: int<classes>[b]
  h = x
  repeat n as layer
    weight v: f32[4 * d, d] ~ normal(0.02)
    weight w: f32[d, 4 * d] ~ normal(0.02)
    h = h + linear(relu(linear(h, v)), w)
  weight head: f32[classes, d] ~ normal(0.02)
  logits = linear(h, head)
  loss cross_entropy(logits, target)
"""
FOUR = """\
model four[b = 8, d = 16]
  input x: f32[b, d]
  input target: f32[b, d]
  weight v: f32[2 * d, d] ~ normal(0.02)
  weight w: f32[d, 2 * d] ~ normal(0.02)
  loss mse(linear(relu(linear(x, v)), w), target)
"""

Planned = Callable[..., Compilation]


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """`planned(model text, plan data, devices)`: a compilation with the plan of the file, without fusions."""

    def plan(model: str, data: object, devices: int, **choices: Any) -> Compilation:
        (tmp_path / "model.udl").write_text(model)
        (tmp_path / "plan.json").write_text(data if isinstance(data, str) else json.dumps(data))
        given = {"machine": "dgx-a100", "shipped_rules": False, **choices}
        return compile_model(Request(tmp_path / "model.udl", devices=devices, plan=tmp_path / "plan.json", **given))

    return plan
