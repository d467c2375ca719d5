"""Comments about a body: its iterations, and the layouts in which it differs from most iterations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.comment_words import body_words
from unity_dsl.graph.layout import Invariant, Layout, Shard
from unity_dsl.graph.plan import PlannedSegment, Run

MODEL = """\
model tiny[b = 4, d = 4]
  input x: f32[b, d]
  repeat 4 as layer
    weight w: f32[d, d] ~ normal(0.02)
    x = relu(linear(x, w))
  loss mse(x, x)
"""


def test_a_body_says_in_what_it_differs_from_the_others(tmp_path: Path) -> None:
    (tmp_path / "tiny.udl").write_text(MODEL)
    plan = compile_model(Request(tmp_path / "tiny.udl", devices=2, strategy="data_parallel")).plan
    (step,) = (step for step in plan.graph.steps if isinstance(step, PlannedSegment))
    body = step.runs[-1].body
    whole = replace(step, runs=(Run(0, 4, body),))
    assert body_words(whole, whole.runs[0]) == ["tiny.udl:3  layer.0 to layer.3"]
    cut = replace(body.values["w"], produced=Layout((Shard(0),)))
    other = replace(body, values={**body.values, "w": cut})
    several: PlannedSegment = replace(step, runs=(Run(0, 1, other), Run(1, 3, body)))
    assert body.values["w"].produced == Layout((Invariant(),))
    words = "tiny.udl:3  layer.0; layouts differ from layer.1 to layer.3: w is S0, not I"
    assert body_words(several, several.runs[0]) == [words]
    assert body_words(several, several.runs[1]) == ["tiny.udl:3  layer.1 to layer.3"]
