"""`unityc explain OUT --search`: the search trail in plan.json, and three lines on its result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.emit.plan_file import NAME, load_plan_file
from unity_dsl.written_figures import duration

EXAMPLE = Path(__file__).parents[2] / "examples" / "mlp_unity.udl"


def compiled(out: Path, *options: str) -> None:
    assert run([str(EXAMPLE), "-o", str(out), "--machine", "dgx-h100", "--devices", "4", *options]) == 0


def test_the_trail_is_printed_as_plan_json_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each move has a line, with incumbents marked. The last incumbent is the plan, and the gap line tells its step."""
    out = tmp_path / "out"
    compiled(out, "--preset", "small")
    written, record = json.loads((out / NAME).read_text()), load_plan_file(out)
    assert len(written["search"]) == len(record.trail) > 1
    capsys.readouterr()
    assert run(["explain", str(out), "--search"]) == 0
    head, *told = capsys.readouterr().out.splitlines()
    assert head.split() == ["simulated", "move", "mesh", "micro-batches", "step"]
    rows, blank, lines = told[: len(record.trail)], told[len(record.trail)], told[len(record.trail) + 1 :]
    assert not blank and len(lines) == 3
    for trial, row in zip(record.trail, rows, strict=True):
        assert row.split()[0] == str(trial.evaluations) and trial.move in row
        assert (trial.seconds is None and "does not fit" in row) or duration(trial.seconds) in row
        assert row.endswith("best") == trial.best
    gap, limit, last = lines
    assert gap.startswith(f"gap: the step takes {duration(written['simulated_seconds'])}, ")
    assert limit.startswith("limit: ") and "%" in limit and last.startswith("tried last, longer by: ")


def test_a_plan_that_was_not_searched_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    compiled(out, "--preset", "small")
    document = json.loads((out / NAME).read_text())
    (out / NAME).write_text(json.dumps({**document, "search": []}))
    capsys.readouterr()
    assert run(["explain", str(out), "--search"]) == 0
    assert "the plan was not searched for" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--schedule"], ["--json"], ["--pin", "x=S0"]])
def test_it_takes_no_other_option(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    compiled(out, "--preset", "small")
    assert run(["explain", str(out), "--search", *options]) == 2
    assert "takes no other option" in capsys.readouterr().err
    assert run(["explain", "relu", "--search"]) == 2


@pytest.mark.parametrize("trial", [[1], {"evaluations": -1}, {"evaluations": 1, "move": 2}, "start"])
def test_a_garbled_trail_is_told(trial: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    compiled(out, "--preset", "small")
    document = json.loads((out / NAME).read_text())
    (out / NAME).write_text(json.dumps({**document, "search": [trial]}))
    assert run(["explain", str(out), "--search"]) == 2
    assert "E404" in capsys.readouterr().err
