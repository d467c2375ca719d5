"""Notes on operators that devices repeat because no division is proved, and what `check` reports about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from unity_dsl.cli import unityc
from unity_dsl.compilation import Request, compile_model
from unity_dsl.resources import folder
from unity_dsl.search.accounting.unproved_divisions import UNDIVIDED

MIRROR = """\
## Every row stands where its mirror image was.
op mirror(x: [b, s, d]) -> y: [b, s, d]
  y[b, s, d] = tanh(x[|b| - 1 - b, |s| - 1 - s, |d| - 1 - d])

## Rows that are reversed.
op turned(x: [b, s, d]) -> y: [b, s, d]
  y[b, s, d] = tanh(x[b, |s| - 1 - s, |d| - 1 - d])
"""
MODEL = """\
model reversing[b = 64, s = 32, d = 64]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight w: f32[d, d] ~ normal(0.1)
  h = {operator}(linear(x, w))
  loss mse(linear(h, w), target)
"""


def request(folder: Path, operator: str, devices: int = 4, strategy: str = "auto") -> Request:
    (folder / "ops").mkdir(exist_ok=True)
    (folder / "ops" / "own.uop").write_text(MIRROR)
    (folder / "m.udl").write_text(MODEL.format(operator=operator))
    return Request(folder / "m.udl", operators=(folder / "ops",), devices=devices, strategy=strategy)


def undivided(request: Request) -> list[str]:
    return [note for note in compile_model(request).plan.notes if note.startswith(UNDIVIDED)]


@pytest.mark.parametrize("strategy", ["auto", "data_parallel"])
def test_an_operator_that_every_device_repeats_is_told_with_the_term_and_its_place(
    strategy: str, tmp_path: Path
) -> None:
    (note,) = undivided(request(tmp_path, "mirror", strategy=strategy))
    assert note.startswith(f"{UNDIVIDED}4 devices repeat `mirror` of h: along `b`, `s`, `d`: ")
    place = MIRROR.index("x[|b|")
    line, column = MIRROR[:place].count("\n") + 1, place - MIRROR.rindex("\n", 0, place)
    assert "`x[|b| - 1 - b, |s| - 1 - s, |d| - 1 - d]`" in note and f"own.uop:{line}:{column})" in note


def test_one_that_may_be_divided_is_not_told_of(tmp_path: Path) -> None:
    """It is divided along its batch. Nothing is reported either if the devices divide none of the sizes, or for one
    device.
    """
    assert not undivided(request(tmp_path, "turned"))
    assert not undivided(request(tmp_path, "mirror", devices=7))
    assert not undivided(request(tmp_path, "mirror", devices=1))


@pytest.mark.parametrize("name", ["gpt2", "dlrm", "resnext50", "lstm_lm"])
def test_of_the_examples_nothing_is_told(name: str) -> None:
    for strategy in ("auto", "data_parallel"):
        assert not undivided(Request(folder("examples") / f"{name}.udl", preset="small", devices=2, strategy=strategy))


def test_check_says_what_is_divided_and_warns_of_the_rest(tmp_path: Path) -> None:
    request(tmp_path, "mirror")
    runner = CliRunner()
    out = str(tmp_path / "out")
    options = ["--ops", str(tmp_path / "ops"), "-o", out, "--devices", "2", "--strategy", "data_parallel"]
    compiled = runner.invoke(unityc, [str(tmp_path / "m.udl"), *options])
    assert compiled.exit_code == 0 and compiled.output.count(UNDIVIDED) == 1, compiled.output
    found = runner.invoke(unityc, ["check", out])
    assert found.exit_code == 0, found.output
    lines = dict(line.split(maxsplit=1) for line in found.output.splitlines())
    assert lines["divided"].startswith("3 of 4 operators: along ")
    assert lines["warning"].startswith(f"{UNDIVIDED}2 devices repeat `mirror`")
