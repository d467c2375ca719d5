"""The note on sizes not divisible by 8 states how much less time the step takes without them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import Plan

MODEL = """
model m[b = 4096, d = 1024, words = 30001]
  precision bf16
  input x: f32[b, d]
  input target: int<words>[b]
  weight table: f32[words, d] ~ normal(0.02)
  loss cross_entropy(linear(x, table), target)
"""


def planned(folder: Path, words: int, d: int = 1024, machine: str = "h200", precision: str | None = None) -> Plan:
    path = folder / "m.udl"
    path.write_text(MODEL)
    request = Request(path, settings={"words": words, "d": d}, machine=machine, strategy="single", precision=precision)
    return compile_model(request).plan


def told(plan: Plan) -> list[str]:
    return [note for note in plan.notes if "numbers are slow" in note]


def test_the_step_is_as_much_shorter_as_is_told(tmp_path: Path) -> None:
    """For the summed dimension, which is not padded."""
    odd, even = planned(tmp_path, 30000, 1021), planned(tmp_path, 30000, 1024)
    (note,) = told(odd)
    assert "rows of 1,021 numbers are slow, as no 8 divides that: with 1,024 the step" in note
    (milliseconds,) = map(float, re.findall(r"take ([\d.]+) ms less", note))
    assert odd.seconds - even.seconds == pytest.approx(1e-3 * milliseconds, rel=0.02)
    assert not told(even)


def test_padded_columns_take_what_is_copied_more(tmp_path: Path) -> None:
    """The weight is written twice and read, and so is the gradient of the result. The gradient of the
    weight is copied.
    """
    odd, even = planned(tmp_path, 30001), planned(tmp_path, 30008)
    assert not told(odd)
    copied = 2 * 30008 * (3 * 1024 + 3 * 4096 + 2 * 1024)
    assert odd.seconds - even.seconds == pytest.approx(copied / (4.8e12 * 0.88), rel=0.05)


def test_nothing_is_told_of_other_types_and_machines(tmp_path: Path) -> None:
    assert not told(planned(tmp_path, 30001, precision="f32"))
    assert not told(planned(tmp_path, 30001, machine="local"))
