"""Images sharded along height and width: halos are exchanged, and the operator's own call runs on slices with halos."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool

Compile = Callable[..., Path]
THIN = str(Path(__file__).parent / "thin.toml")
LARGE = Path(__file__).parent / "large.udl"

PICTURES = """model pictures[b = 2, c = 4, h = 8, w = 8]
  input x: f32[b, c, h, w]
  input target: f32[b, c]
  weight w1: f32[8, 2, 3, 5] ~ normal(0.2)
  weight w2: f32[8, 8, 3, 3] ~ normal(0.2)
  weight w3: f32[c, 8, 1, 1] ~ normal(0.2)
  weight shift: f32[8, 1, 1] ~ normal(0.2)
  u = conv2d(x, w1; pad_h=1, pad_w=2, groups=2)
  v = relu(u + shift)
  g = max_pool2d(v; size=3, stride=2, pad_h=1, pad_w=1)
  k = conv2d(g, w2; pad_h=2, pad_w=2, dilation=2)
  m = avg_pool2d(k; size=3, stride=1, pad_h=1, pad_w=1)
  y = conv2d(m, w3)
  z = global_avg_pool2d(y)
  loss mse(z, target)
"""

VALUES = ("u", "g", "k", "m", "y")


def pinned(*layouts: str) -> list[str]:
    return [f"{value}={layout}" for value, layout in zip(VALUES, layouts, strict=True)]


@pytest.mark.parametrize(
    ("mesh", "pins"),
    [
        ((2,), pinned(*["S3"] * 5)),
        ((4,), pinned(*["S2"] * 5)),
        ((2, 2), pinned(*["S2,S3"] * 5)),
        ((2, 2), pinned("S1,S2", "S1,S2", "S0,S3", "S0,S3", "S1,S2")),
    ],
    ids=["width", "one row a device", "height and width", "with channels and the batch"],
)
def test_divided_images(mesh: tuple[int, ...], pins: list[str], compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(PICTURES, devices=2 * len(mesh) if mesh != (4,) else 4, mesh=mesh, pins=pins)
    text = (out / "model.py").read_text()
    assert "halo(p)" in text or "halo(q)" in text
    assert text.count("F.conv2d(") == 3 and text.count("F.max_pool2d(") == text.count("F.avg_pool2d(") == 1
    report = check(out, pool=pool)
    assert report.ok, report


def test_the_search_divides_large_images(compile_program: Compile, pool: RankPool) -> None:
    """With one image and few channels nothing else can be sharded."""
    out = compile_program(LARGE.read_text(), devices=2, machine=THIN)
    steps = json.loads((out / "plan.json").read_text())["graph"]["steps"]
    roles = [step["configuration"] for step in steps if step["operator"] == "conv2d"]
    assert roles == [["along p by halo"]] * 2
    report = check(out, pool=pool)
    assert report.ok, report
