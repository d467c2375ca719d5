"""Pins inside repeats: a glob over a whole body does not change values that come from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import PlannedSegment

MODEL = """model deep[b = 8, d = 16]
  input x: f32[b, d]
  input target: f32[b, d]
  repeat 3 as layer
    weight w: f32[d, d] ~ normal(0.1)
    x = x + linear(x, w)
  loss mse(x, target)
"""


@pytest.mark.parametrize("layout", ["S0", "S1", "I"])
def test_a_glob_over_a_body(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.udl"
    path.write_text(MODEL)
    plan = compile_model(Request(path, devices=2, pins=[f"layer.*={layout}"])).plan
    segment = next(step for step in plan.graph.steps if isinstance(step, PlannedSegment))
    for run in segment.runs:
        for exit_ in segment.segment.exit:
            assert str(run.body.values[exit_.name].produced) == layout
        assert str(run.body.values["w"].produced) == layout
