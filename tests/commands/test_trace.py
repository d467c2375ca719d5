"""`unityc trace`: a trace and a summary of the program in a folder, and diagnostics if there is no program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.cli import run
from unity_dsl.commands.trace import VIEWER

MODEL = """\
model tiny[b = 8, d = 16, classes = 4]
  input x: f32[b, d]
  input target: int<classes>[b]
  weight v: f32[d, d] ~ normal(0.02)
  weight w: f32[classes, d] ~ normal(0.02)
  logits = linear(relu(linear(x, v)), w)
  loss cross_entropy(logits, target)
  output logits
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.udl").write_text(MODEL)
    return tmp_path


def compile_model(capsys: pytest.CaptureFixture[str], *options: str) -> None:
    assert run(["model.udl", "-o", "out", "--machine", "dgx-h100", *options]) == 0
    capsys.readouterr()


def trace(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = run(["trace", "out", *options])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def slices(path: Path) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize(
    "options",
    [
        ("--devices", "1"),
        ("--devices", "4"),
        ("--mesh", "2,2", "--strategy", "data_parallel"),
        ("--devices", "4", "--strategy", "random:3"),
        ("--devices", "2", "--strategy", "data_parallel", "--pin", "w=S0"),
        ("--devices", "2", "--set", "b=16", "--forbid", "linear_with_bias"),
    ],
    ids=" ".join,
)
def test_a_program_is_traced_as_it_was_compiled(
    workplace: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    compile_model(capsys, *options)
    code, out, err = trace(capsys, "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    shown = slices(workplace / "trace.json")
    tasks = [event for event in shown if not event["name"].startswith("launch ")]
    assert len(tasks) == summary["tasks"] > 0
    last = max(event["ts"] + event["dur"] for event in shown)
    assert last == pytest.approx(summary["seconds"] * 1e6, abs=2e-3)
    assert summary["seconds"] >= summary["lower_bound"]["seconds"] * (1 - 1e-9)
    issued = [event["args"]["launches"] for event in tasks if "launches" in event["args"]]
    assert summary["launches"] == pytest.approx(10e-6 * sum(issued))
    assert 0 <= summary["exposed"] <= summary["communication"] + 1e-12
    assert {event["cat"] for event in tasks} >= {"forward", "backward"}


def test_gradients_of_data_parallel_are_sent(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of two devices sends the bytes of both weights and of the loss; one device sends nothing."""
    compile_model(capsys, "--devices", "2", "--strategy", "data_parallel")
    summary = json.loads(trace(capsys, "--json")[1])
    assert summary["sent"] == {"all_reduce": 4.0 * (16 * 16 + 4 * 16 + 1)}
    assert summary["communication"] > 0
    compile_model(capsys, "--devices", "1")
    summary = json.loads(trace(capsys, "--json")[1])
    assert (summary["sent"], summary["communication"], summary["exposed"]) == ({}, 0, 0)


def test_a_summary_for_people(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_model(capsys, "--devices", "2", "--strategy", "data_parallel")
    code, out, err = trace(capsys, "-o", "step.json")
    assert (code, err) == (0, "")
    labels = [line.split()[0] for line in out.splitlines()]
    assert labels == ["plan", "simulated", "bound", "memory", "sent", "wrote"]
    assert "tiny on 2 devices of dgx-h100, data_parallel" in out
    assert "launches" in out and "exposed" in out and VIEWER in out and "step.json" in out
    assert not (workplace / "trace.json").exists() and slices(workplace / "step.json")


def test_the_folder_of_the_program_is_left_alone(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_model(capsys, "--devices", "2")
    before = {path.name: path.read_bytes() for path in (workplace / "out").iterdir()}
    assert trace(capsys)[0] == 0
    assert {path.name: path.read_bytes() for path in (workplace / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("keys", "value", "code"),
    [
        (("sources", "model", "text"), MODEL.replace("d = 16", "d = 32"), "E405"),
        (("graph", "weights", "w"), "S1", "E405"),
        (("mesh", 0, "degree"), 4, "E405"),
        (("graph",), [], "E404"),
    ],
    ids=lambda keys: ".".join(map(str, keys)) if isinstance(keys, tuple) else "",
)
def test_a_plan_of_other_texts_is_refused(
    workplace: Path, capsys: pytest.CaptureFixture[str], keys: tuple[str | int, ...], value: object, code: str
) -> None:
    """The texts were changed, or do not give the plan: the trace would be of another program."""
    compile_model(capsys, "--devices", "2")
    path = workplace / "out" / "plan.json"
    document = json.loads(path.read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    assert place[keys[-1]] != value
    place[keys[-1]] = value
    path.write_text(json.dumps(document))
    exit_code, out, err = trace(capsys)
    assert (exit_code, out) == (2, "")
    assert err.startswith(f"error[{code}]") and "Traceback" not in err
    assert not (workplace / "trace.json").exists()


def test_a_trace_that_cannot_be_written(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_model(capsys, "--devices", "2")
    exit_code, out, err = trace(capsys, "-o", "nowhere/trace.json")
    assert (exit_code, out) == (2, "")
    assert err.startswith("error[E030]")


def test_what_is_run_again_is_told_and_in_the_backward(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = MODEL.replace(
        "  weight w:",
        "  repeat 3 as layer\n    weight u: f32[d, d] ~ normal(0.02)\n    x = exp(linear(x, u))\n  weight w:",
    )
    (workplace / "model.udl").write_text(text)
    found = {}
    for word in ("none", "layer"):
        compile_model(capsys, "--recompute", word)
        code, out, _ = trace(capsys)
        assert code == 0 and ("recomputed  layer, in the backward pass" in out) == (word == "layer")
        found[word] = [event["name"] for event in slices(workplace / "trace.json") if event["cat"] == "backward"]
        assert run(["explain", "out", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["recomputed"]
        assert told == (["layer"] if word == "layer" else [])
    assert found["layer"].count("linear") == found["none"].count("linear") + 3
