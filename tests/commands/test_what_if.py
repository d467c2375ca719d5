"""`unityc explain OUT --pin … --forbid …`: the plan with these options on the same mesh, beside the existing one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.cli import run
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Exposure
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.layout_pins import parse_pins
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

MODEL = """\
model tiny[b = 4096, d = 2048, h = 4096]
  input x: f32[b, d]
  input target: f32[b, d]
  weight first: f32[d, d] ~ normal(0.02)
  y = relu(linear(x, first))
  repeat 3 as layer
    weight up: f32[h, d] ~ normal(0.02)
    weight down: f32[d, h] ~ normal(0.02)
    inner = relu(linear(y, up))
    y = y + linear(inner, down)
  loss mse(y, target)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.udl"
    path.write_text(MODEL)
    return path


def compiled(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["model.udl", "-o", "out", "--machine", "dgx-h100", "--devices", "4", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["explain", "out", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def cost(model: Path, mesh: dict[str, int], *pins: str) -> float:
    """The cost of the best plan with these pins, at the prices of the written plan."""
    parts = json.loads(Path("out/plan.json").read_text())["exposed"]
    machine = load_machine("dgx-h100")
    shape = build_mesh(machine, 4, tuple(mesh.values()))
    built, library = build_model(parse_model(read_source(model)), load_library()), load_library()
    return search(built, shape, machine.exposing(Exposure(**parts)), library, pins=parse_pins(pins)).cost.seconds


def other_than(layout: str) -> str:
    return "I" if "S" in layout else "S0"


def test_a_pin_costs_what_compiling_with_it_says(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = compiled(capsys)
    pin = f"first={other_than(own['layouts']['first'])}"
    found = explained(capsys, "--pin", pin)
    (other,) = found["what_if"]
    assert other["condition"] == f"with {pin}"
    assert other["cost_seconds"] == pytest.approx(cost(model, own["mesh"], pin))
    assert found["cost_seconds"] == pytest.approx(own["cost"]["seconds"])
    assert other["cost_seconds"] >= cost(model, own["mesh"])
    before, then = other["differ"]["first"]
    assert before == own["layouts"]["first"] != then and set(then.split(",")) == {pin.partition("=")[2]}
    assert other["fits"] and other["memory_bytes"] > 0 and other["simulated_seconds"] > 0


def test_what_is_forbidden_is_not_chosen(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = compiled(capsys)
    layout = own["layouts"]["layer.*.up"]
    (other,) = explained(capsys, "--forbid", f"layer.up={layout}")["what_if"]
    before, then = other["differ"]["layer.*.up"]
    assert before == layout and layout not in then.split(" and ")
    others = [kind for kind in ("I", "S0", "S1") if set(layout.split(",")) != {kind}]
    pinned = [cost(model, own["mesh"], f"layer.up={kind}") for kind in others]
    worse = [seconds for seconds in pinned if seconds > own["cost"]["seconds"] * (1 + 1e-9)]
    assert own["cost"]["seconds"] <= other["cost_seconds"] <= min(worse) * (1 + 1e-9)


def test_both_at_once(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = compiled(capsys)
    arguments = ("--pin", f"first={other_than(own['layouts']['first'])}", "--forbid", "layer.down=I")
    (other,) = explained(capsys, *arguments)["what_if"]
    alone = explained(capsys, *arguments[:2])["what_if"][0]
    assert "first" in other["differ"] and other["cost_seconds"] >= alone["cost_seconds"] * (1 - 1e-9)


def test_a_plan_with_pins_is_told_without_them(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free = compiled(capsys)
    first, down = (f"{name}={other_than(free['layouts'][path])}" for name, path in
                   (("first", "first"), ("layer.down", "layer.*.down")))  # fmt: skip
    own = compiled(capsys, "--pin", first, "--pin", down)
    found = explained(capsys)["what_if"]
    assert [other["condition"] for other in found] == [
        f"without the pin {first}", f"without the pin {down}", "without any pin",
    ]  # fmt: skip
    expected = [cost(model, own["mesh"], *pins) for pins in ((down,), (first,), ())]
    assert [other["cost_seconds"] for other in found] == pytest.approx(expected)
    assert all(other["cost_seconds"] <= own["cost"]["seconds"] * (1 + 1e-9) for other in found)


def test_what_is_asked_wins_over_a_pin_of_the_plan(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = compiled(capsys, "--pin", "first=S0")
    (other,) = explained(capsys, "--pin", "first=I")["what_if"]
    assert other["cost_seconds"] == pytest.approx(cost(model, own["mesh"], "first=I"))
    (other,) = explained(capsys, "--forbid", "first=S0")["what_if"]
    assert set(other["differ"]["first"][1].split(",")) != {"S0"}


def test_the_table_for_people(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = compiled(capsys)
    pin = f"first={other_than(own['layouts']['first'])}"
    assert run(["explain", "out", "--pin", pin]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("what if"))
    assert lines[head + 1].startswith("this plan") and lines[head + 2].startswith(f"with {pin}")
    assert any(line.startswith(f"  first: {own['layouts']['first']} -> ") for line in lines[head:])
    assert run(["explain", "out"]) == 0
    assert "what if" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("out", "--pin", "furst=S0"), "error[E306]"),
        (("out", "--forbid", "furst=S0"), "error[E306]"),
        (("out", "--pin", "first=Q"), "error[E305]"),
        (("out", "--forbid", "first"), "error[E305]"),
        (("out", "--forbid", "first=S7"), "error[E307]"),
        (("out", "--pin", "first=S0", "--pin", "first=I"), "error[E305]"),
        (("out", "--pin", "layer.0.up=S0"), "error[E308]"),
        (("nowhere", "--pin", "first=S0"), "there is no folder nowhere"),
    ],
)
def test_faulty_pins_are_told(
    model: Path, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(capsys)
    assert run(["explain", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_value_needs_a_layout(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled(capsys, "--mesh", "4")
    every = ("first=I", "first=S0", "first=S1")
    assert run(["explain", "out", *(word for layout in every for word in ("--forbid", layout))]) == 2
    assert "error[E307]: `first` has no layout here but I and S0 and S1" in capsys.readouterr().err


@pytest.mark.parametrize("choice", [("--devices", "1"), ("--strategy", "random:3")])
def test_a_plan_that_is_not_searched_has_no_other(
    model: Path, choice: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["model.udl", "-o", "out", "--machine", "dgx-h100", "--devices", "4", *choice]) == 0
    capsys.readouterr()
    assert run(["explain", "out", "--pin", "first=S0"]) == 2
    assert "is not searched" in capsys.readouterr().err
