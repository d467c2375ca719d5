"""Models compiled from Python: the plan says what the commands print, and the program is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import unity_dsl as u
from unity_dsl.cli import run

MODEL = Path(__file__).parent.parent.parent / "examples" / "gpt2.udl"
ASKED = {"machine": "dgx-a100", "devices": 2, "strategy": "data_parallel", "preset": "small"}
OPTIONS = ["--machine", "dgx-a100", "--devices", "2", "--strategy", "data_parallel", "--preset", "small"]


@pytest.fixture(scope="module")
def plan() -> u.PlannedModel:
    return u.compile(MODEL, machine="dgx-a100", devices=2, strategy="data_parallel", preset="small")


def test_all_public_names_are_there() -> None:
    for name in u.__all__:
        assert getattr(u, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'plan'"):
        u.plan  # noqa: B018


def test_the_program_is_that_of_the_command(
    plan: u.PlannedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(MODEL), "-o", str(tmp_path / "command"), *OPTIONS]) == 0
    printed = capsys.readouterr().out.rstrip("\n").splitlines()
    files = plan.write(tmp_path / "python")
    assert sorted(path.name for path in files) == sorted(path.name for path in (tmp_path / "command").iterdir())
    for path in files:
        other = tmp_path / "command" / path.name
        assert path.read_text() == other.read_text(), path.name
    lines = [line.split() for line in plan.summary().splitlines()]
    assert lines == [line.split() for line in printed[: len(lines)]]


def test_figures_are_those_of_the_plan(plan: u.PlannedModel, tmp_path: Path) -> None:
    plan.write(tmp_path / "out")
    written = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert (plan.name, plan.fits, plan.mesh) == ("gpt2", True, {"data": 2})
    assert plan.seconds == pytest.approx(written["simulated_seconds"]) and plan.memory_bytes > 0
    assert repr(plan).startswith("<gpt2 on 2 devices of dgx-a100: ") and "data-parallel over 2" in repr(plan)
    assert plan._repr_html_().count("<tr>") == len(plan.summary().splitlines())
    assert "&lt;" not in repr(plan) and isinstance(plan.notes, tuple)


def test_a_plan_explains_itself(
    plan: u.PlannedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan.write("out")
    for part in (None, "layer_norm"):
        assert run(["explain", "out", *([part] if part else [])]) == 0
        assert plan.explain(part) == capsys.readouterr().out.rstrip("\n")
    assert repr(plan.explain("layer_norm")) == plan.explain("layer_norm"), "a notebook shows it as it is"
    assert json.loads(plan.trace("step.json").read_text())["traceEvents"]
    with pytest.raises(u.InputError, match="E031"):
        plan.explain("nothing_of_that_name")


def test_other_plans_beside_it(plan: u.PlannedModel) -> None:
    (other,) = plan.what_if(pins={"wte": "S0"})
    assert other.condition == "with wte=S0" and other.differ["wte"][1] == "S0" and other.memory_bytes > 0
    table = plan.compare(["data_parallel", "zero"])
    assert [line.split()[0] for line in table.splitlines() if line.split()[:1] != []].count("zero") == 1


def test_faults_are_those_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(u.InputError, match="E306") as told:
        u.compile(MODEL, devices=2, preset="small", pins={"no_such": "S0"})
    assert told.value.diagnostic.code.startswith("E3")
    with pytest.raises(u.InputError, match="E001"):
        u.compile(tmp_path / "none.udl")
