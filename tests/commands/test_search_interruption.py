"""`--time-limit` and Ctrl-C: the best plan found, its report, and what remains of running processes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.cli import run
from unity_dsl.rules.process_map import process_map
from unity_dsl.search.meshes import mesh_search

ROOT = Path(__file__).parent.parent.parent
UNITYC = str(Path(sys.executable).parent / "unityc")
GPT2 = (str(ROOT / "examples" / "gpt2.udl"), "--machine", "dgx-a100", "--devices", "8")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, with SIGINT handled as in a terminal's foreground process."""
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield tmp_path
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def at_the_first_plan(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Calls `do` once the search knows the first plan of a mesh."""
    tell, times = mesh_search.tell_cost, [1]

    def told(seconds: float, bound: float) -> None:
        tell(seconds, bound)
        if times:
            times.pop()
            do()

    monkeypatch.setattr(mesh_search, "tell_cost", told)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def written() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("out/plan.json").read_text())
    return found


def test_an_interruption_takes_the_best_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(active_children())
    at_the_first_plan(monkeypatch, interrupt)
    assert run([*GPT2]) == 0
    told = capsys.readouterr()
    assert told.err == "" and set(active_children()) <= before
    assert "note" in told.out and "the search was ended by an interruption: this is the best plan" in told.out
    assert re.search(r"search +(within|proved optimal) .* on \d of \d meshes[;\n]", told.out), "what is bounded is told"
    assert written()["ended"] == "an interruption" and Path("out/model.py").is_file()
    assert run(["explain", "out"]) == 0
    assert "gpt2 on" in capsys.readouterr().out


def test_a_second_interruption_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_the_first_plan(monkeypatch, lambda: (interrupt(), interrupt()))
    assert run([*GPT2]) == 130
    assert capsys.readouterr().err.strip() == "unityc: interrupted" and not Path("out").exists()


def test_the_program_of_an_ended_search_equals_its_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_the_first_plan(monkeypatch, interrupt)
    example = str(ROOT / "examples" / "mlp_unity.udl")
    assert run([example, "--preset", "small", "--devices", "2"]) == 0
    assert written()["ended"]
    assert run(["check", "out"]) == 0
    assert "equals its model" in capsys.readouterr().out


def test_a_limit_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The result is the first plan: data parallelism, with the step of `data_parallel` without fusions."""
    children = set(active_children())
    assert run([*GPT2, "--time-limit", "0.001"]) == 0
    told, found = capsys.readouterr(), written()
    assert "the search was ended by its time limit of 0.001 s" in told.out
    assert run([*GPT2, "-s", "data_parallel", "--no-rules", "--mesh", "8", "-o", "other"]) == 0
    other = json.loads(Path("other/plan.json").read_text())
    assert found["ended"] == "its time limit of 0.001 s" and found["mesh"] == other["mesh"]
    assert found["simulated_seconds"] == pytest.approx(other["simulated_seconds"], rel=0.02)
    assert set(active_children()) <= children


def test_a_search_that_does_not_end_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it is doing, it ends with its processes, and the incumbent is written."""

    def endless(seconds: float, bound: float) -> None:
        list(process_map(time.sleep, [3600.0] * 4, 2))

    monkeypatch.setattr(mesh_search, "tell_cost", endless)
    before, children = signal.getsignal(signal.SIGALRM), set(active_children())
    assert run([*GPT2, "--time-limit", "2"]) == 0
    assert "the search was ended by its time limit of 2 s" in capsys.readouterr().out
    assert written()["ended"] == "its time limit of 2 s" and set(active_children()) <= children
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_interruption_abandons_a_search_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def endless(seconds: float, bound: float) -> None:
        interrupt()
        time.sleep(3600)

    monkeypatch.setattr(mesh_search, "tell_cost", endless)
    assert run([*GPT2]) == 0
    assert written()["ended"] == "an interruption"


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*GPT2, "--time-limit", seconds]) == 2
    assert "--time-limit" in capsys.readouterr().err and not Path("out").exists()


def test_a_limit_that_is_not_met_changes_nothing() -> None:
    """The files are identical byte for byte to those without a limit."""
    example = (str(ROOT / "examples" / "mlp_unity.udl"), "--preset", "small", "--devices", "4")
    assert run([*example, "-o", "free"]) == run([*example, "-o", "again"]) == 0
    assert run([*example, "-o", "limited", "--time-limit", "100000"]) == 0
    for path in Path("free").iterdir():
        assert path.read_bytes() == Path("again", path.name).read_bytes() == Path("limited", path.name).read_bytes()


def test_each_strategy_has_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    """`auto` has its first plan by then; another strategy has none."""
    assert run(["compare", *GPT2, "-s", "auto,data_parallel", "--time-limit", "0.001"]) == 0
    told = capsys.readouterr().out
    assert told.count("before it had found a plan (E320)") == 1
    assert run(["compare", *GPT2, "-s", "auto,data_parallel", "--time-limit", "0.001", "--json"]) == 0
    auto, other = json.loads(capsys.readouterr().out)["strategies"]
    assert auto["ended"] == "its time limit of 0.001 s" and auto["iteration_s"] > 0
    assert "E320" in other["refused"] and other["ended"] is None


def test_a_terminal_shows_the_best_plan_and_its_gap(tmp_path: Path) -> None:
    """The line is updated in place and erased at the end. A pipe gets a whole line every ten seconds."""
    command = [UNITYC, *GPT2, "--time-limit", "100000"]
    shown, screen = pty.openpty()
    done = subprocess.Popen(command, stderr=screen, stdout=subprocess.PIPE, cwd=tmp_path, text=True)
    os.close(screen)
    told = b""
    try:
        while part := os.read(shown, 4096):
            told += part
    except OSError:
        pass  # reading a terminal fails when no process writes to it any more
    out, _ = done.communicate()
    lines = told.decode().replace("\x1b[K", "").split("\r")
    assert done.returncode == 0 and lines[-1] == ""
    assert any(re.fullmatch(r"gpt2: best so far .* a step, data parallelism \(\d+ s\)", line) for line in lines), lines
    cost = r"gpt2: best so far .* a step; searching meshes: additive cost .* \(\d+ s\)"
    assert any(re.fullmatch(cost, line) for line in lines), lines
    assert any("a step; rules and layouts together" in line for line in lines), lines
    assert "\n" not in "".join(lines) and "best so far" not in out
    piped = subprocess.run(command, capture_output=True, cwd=tmp_path, text=True, check=True)
    assert all(re.fullmatch(r"unityc: gpt2(: .*)? \(\d+ s\)", line) for line in piped.stderr.splitlines())
