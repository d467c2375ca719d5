"""`unityc profile`: the file that it writes, and the files that remain after an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.graph.collective_steps import StepKind
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.measured_operators import CurveKey, Direction
from unity_dsl.resources import folder

PROGRAM = """
import signal, sys
from unity_dsl.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background inherits that it is ignored
sys.argv = ["unityc", *sys.argv[1:]]
main()
"""


def test_a_profile_is_a_machine_that_models_are_compiled_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert run(["profile", "-o", str(path), "--ranks", "2", "--seconds", "1"]) == 0
    machine = load_machine(str(path))
    assert machine.name == "mine"
    assert machine.device == "cpu"
    assert machine.devices == 2
    assert CurveKey("class elementwise", "f32", Direction.FORWARD) in machine.measured.curves
    assert {key.direction for key in machine.measured.grids} == {Direction.FORWARD, Direction.LEFT, Direction.RIGHT}
    assert set(machine.collectives.measured.curves) == {
        (kind, 2) for kind in (StepKind.ALL_REDUCE, StepKind.ALL_GATHER, StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL)
    }
    first = path.read_text().splitlines()[:2]
    assert "2 ranks" in first[0]
    assert "torch" in first[1]
    model = folder("examples") / "gpt2.udl"
    command = [str(model), "--preset", "small", "-o", str(tmp_path / "out"), "--devices", "2", "--machine", str(path)]
    assert run(command) == 0


def test_an_interrupted_profile_leaves_nothing(tmp_path: Path) -> None:
    """A file that was there before stays as it was."""
    path = tmp_path / "mine.toml"
    path.write_text("before")
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "profile", "-o", str(path), "--seconds", "300"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert child.stderr is not None
    assert "measuring" in child.stderr.readline()
    time.sleep(1)
    os.killpg(child.pid, signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "interrupted" in told
    assert "Traceback" not in told
    assert path.read_text() == "before"
    assert [found.name for found in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["-o", "mine.txt"], "no .toml file"),
        (["-o", "absent/mine.toml"], "E030"),
        (["--ranks", "0"], "0"),
        (["--seconds", "0"], "0"),
        (["--device", "tpu"], "tpu"),
    ],
)
def test_bad_options_are_told_before_anything_is_measured(
    arguments: list[str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["profile", *arguments]) == 2
    assert word in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_more_ranks_than_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    ranks = torch.cuda.device_count() + 1
    assert run(["profile", "--device", "cuda", "--ranks", str(ranks)]) == 2
    assert "CUDA devices" in capsys.readouterr().err
