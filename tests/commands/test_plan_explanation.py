"""`unityc explain OUT`: where the time of a program's step goes, and diagnostics if there is nothing to explain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.cli import run
from unity_dsl.search.strategies import STRATEGIES

from ..sampling import SAMPLE, of_the_day

MODEL = """\
model tiny[b = 64, d = 256]
  input x: f32[b, d]
  input target: f32[b, d]
  repeat 4 as layer
    weight w: f32[d, d] ~ normal(0.02)
    x = relu(linear(x, w))
  loss mse(x, target)
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.udl").write_text(MODEL)
    command = ["model.udl", "-o", "out", "--machine", "dgx-h100", "--devices", "4", "--pin", "layer.w=S0"]
    assert run(command) == 0
    capsys.readouterr()
    return tmp_path / "out"


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["explain", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_step_is_divided_among_its_parts(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels and exposed communication make up the step, unless launches delay it."""
    found = explained(capsys, "out")
    kernels = sum(row["seconds"] for row in found["spent"] if not row["collective"])
    assert kernels + found["exposed"] <= found["seconds"] * (1 + 1e-9)
    assert 0 <= found["exposed"] <= sum(row["exposed"] for row in found["spent"]) + 1e-12
    assert {row["limit"] for row in found["spent"]} <= {"arithmetic", "memory", "launch", "link", "latency"}
    (product,) = (row for row in found["spent"] if row["name"] == "linear")
    assert product["place"].startswith("layer.*.") and product["tasks"] == 2 * 4 and product["backward"] > 0
    assert found["data_parallel"] > 0 and found["devices"] == 4
    assert found["model_flops"] == 4 * 3 * 2 * 64 * 256 * 256  # 67 TFLOP a second in f32 is the peak of an H100
    assert found["utilisation"] == pytest.approx(found["model_flops"] / 67e12 / 4 / found["seconds"])


def test_a_schedule_is_printed_by_itself(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "out", "--schedule"]) == 0
    text = capsys.readouterr().out
    assert "forward:" in text and "backward:" in text and "update:" in text and "layer 0 to 3" in text
    assert run(["explain", "out", "layer.w", "--schedule"]) == 2
    assert run(["explain", "relu", "--schedule"]) == 2
    assert "takes no other option" in (told := capsys.readouterr().err) and "no folder relu" in told


def test_a_batch_that_data_parallelism_does_not_divide_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.udl").write_text(MODEL.replace("b = 64", "b = 6"))
    assert run(["model.udl", "-o", "out", "--machine", "dgx-h100", "--devices", "4"]) == 0
    capsys.readouterr()
    assert explained(capsys, "out")["data_parallel"] > 0, "of the padded batch"
    assert run(["model.udl", "-o", "out", "--machine", "dgx-h100", "--devices", "4", "--pad", "none"]) == 0
    capsys.readouterr()
    found = explained(capsys, "out")
    assert found["data_parallel"] is None and "4 devices do not divide" in found["data_parallel_refused"]
    assert run(["explain", "out"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("data_parallel"))
    assert line.split(maxsplit=1)[1] == "does not fit this model: 4 devices do not divide axis `b0` of 6"


@pytest.mark.parametrize("arguments", [(), ("x",), ("--pin", "x=I")])
def test_a_step_that_takes_no_time(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that returns its input computes nothing: shares of its step and ratios to it are no numbers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "id.udl").write_text("model id[b = 4]\n  input x: f32[b]\n  output x\n")
    assert run(["id.udl", "-o", "out", "--devices", "2"]) == 0
    capsys.readouterr()
    found = explained(capsys, "out", *arguments)
    assert found["seconds"] == 0 and found["utilisation"] is None and found["next_best"] is None
    assert run(["explain", "out", *arguments]) == 0
    assert "simulated" in capsys.readouterr().out
    assert run(["trace", "out"]) == 0
    assert "0 µs a call" in capsys.readouterr().out
    assert run(["compare", "id.udl", "--devices", "2", "--strategies", "auto,data_parallel", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["strategies"]
    assert [row["speedup"] for row in rows] == [None, None]


def test_one_tensor_with_its_layouts(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys, "out", "layer.*.w")
    assert found["spent"] and all(row["place"] == "layer.*.w" for row in found["spent"])
    assert found["layouts"] and all(text.startswith("S0") for text in found["layouts"].values())


def test_every_name_of_the_table_and_of_pins_is_known(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator, a place, both as on a printed line, and the name that a pin uses, with or without iterations."""
    every = explained(capsys, "out")["spent"]
    names = {row["name"] for row in every}
    assert {"linear", "optimizer"} <= names
    for name in names:
        found = explained(capsys, "out", name)["spent"]
        assert found and [row["name"] for row in found] == [row["name"] for row in every if row["name"] == name]
    line = next(f"{row['name']} {row['place']}" for row in every if row["place"])
    assert [f"{row['name']} {row['place']}" for row in explained(capsys, "out", line)["spent"]] == [line]
    weight = explained(capsys, "out", "layer.*.w")
    assert weight["spent"] and weight["layouts"]
    assert explained(capsys, "out", "layer.w") == explained(capsys, "out", "layer.2.w") == weight
    for name in ("linear_1", "layer.linear*"):  # as in model.py, and as in a pin
        found = explained(capsys, "out", name)
        assert [row["name"] for row in found["spent"] if not row["collective"]] == ["linear"] and found["layouts"]


def test_the_next_best_layout(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is one for a value without a pin, and none for the pinned weight."""
    made = next(row["place"] for row in explained(capsys, "out")["spent"] if row["name"] == "linear")
    found = explained(capsys, "out", made)
    assert found["next_best"]["cost_seconds"] > 0 and found["next_best"]["simulated_seconds"] > 0
    assert not set(found["next_best"]["layouts"]) & {text.split(", converted")[0] for text in found["layouts"].values()}
    assert explained(capsys, "out", "layer.*.w")["next_best"] is None


def test_the_table_for_people(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["plan", "tiny"]
    shares = [float(line.split("%")[0]) for line in lines if line.lstrip()[:1].isdigit()]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("out", "layer.*.v"), "error[E031]: the plan has no operator or value called `layer.*.v`"),
        (("empty",), "error[E403]"),
        (("nowhere", "w"), "there is no folder nowhere"),
    ],
)
def test_nothing_to_tell_of(
    out: Path, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (out.parent / "empty").mkdir()
    assert run(["explain", *arguments]) == 2
    assert told in capsys.readouterr().err


BIASED = MODEL.replace("relu(linear(x, w))", "relu(linear(x, w) + bias)").replace(
    "    x = relu", "    weight bias: f32[d] ~ zeros\n    x = relu"
)
STRATEGIES_DRAWN = (*STRATEGIES, "random:3", "random:4")


@pytest.mark.parametrize("number", range(len(of_the_day(STRATEGIES_DRAWN, 6))))
def test_the_plan_of_every_strategy_is_made_again_from_its_file(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This includes operators that rules fused: the file holds their texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.udl").write_text(BIASED)
    strategy = of_the_day(STRATEGIES_DRAWN, 6)[number]
    assert run(["model.udl", "-o", "out", "--machine", "dgx-h100", "--devices", "4", "--strategy", strategy]) == 0
    plan = json.loads(Path("out/plan.json").read_text())
    assert run(["explain", "out"]) == 0, f"UNITY_SAMPLE={SAMPLE}: {strategy}: {capsys.readouterr().err}"
    assert bool(plan["sources"]["fusions"]) >= bool(plan["rules"]), f"UNITY_SAMPLE={SAMPLE}: {strategy}"
