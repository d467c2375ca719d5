"""`unityc rules audit`. Refused inputs are in tests/cases/cli_error."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rules.audit import unity, wire
from unity_dsl.cli import run

UNITYC = str(Path(sys.executable).parent / "unityc")
STATUSES = ["proved", "proved_with_conditions", "refuted", "unbound", "not_proved", "unsupported"]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rules = (
        unity.DATA_PARALLEL, unity.HALVES_OF_JOINED, unity.SUM_OF_LINEARS, unity.UNBOUND, unity.WITHOUT_READING,
    )  # fmt: skip
    Path("rules.json").write_text(unity.text(*rules))
    Path("rules.pb").write_bytes(wire.split_of_product() + wire.moves_relu())
    return tmp_path


def test_json_is_one_document_in_the_order_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "audit", "rules.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["counts", "seconds", "reading", "rules"]
    assert found["counts"] == dict(zip(STATUSES, (1, 1, 1, 1, 0, 1), strict=True)) and found["seconds"] > 0
    assert [list(rule) for rule in found["rules"]] == [["name", "status", "conditions", "reason"]] * 5
    assert [(rule["name"], rule["status"], rule["conditions"]) for rule in found["rules"]] == [
        ("data_parallel", "proved", []),
        ("halves_of_joined", "refuted", []),
        ("sum_of_linears", "proved_with_conditions", ["r == r2"]),
        ("unbound", "unbound", []),
        ("without_reading", "unsupported", []),
    ]
    reasons = [rule["reason"] for rule in found["rules"]]
    assert reasons[0] is None and reasons[1].startswith("at r = 1, n = 1, e = 1")
    assert reasons[3] == "the target reads `x5`, which the source does not bind"
    assert reasons[4] == "there is no reading of `softmax`"
    assert found["reading"]["replicate"].startswith("the tensor twice")


def test_one_process_answers_as_two_do(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for processes in ("1", "2"):
        assert run(["rules", "audit", "rules.json", "--json", "--processes", processes]) == 0
        answers.append(json.loads(capsys.readouterr().out)["rules"])
    assert answers[0] == answers[1]


def test_the_reading_is_printed_and_what_is_not_proved(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "audit", "rules.pb"]) == 0
    out = capsys.readouterr().out
    assert "split    the parts that the concat made which the axis comes from (or --reading split=halves)\n" in out
    assert "\nrefuted  rule_1\n  rule rule_1(x1: [m, k], x4: [k, k2])\n" in out and "output[0, " in out
    assert "rule_0" not in out
    assert ": 1 proved, 0 proved with conditions, 1 refuted, 0 unbound, 0 not proved, 0 unsupported\n" in out


def test_another_reading_is_taken_for_the_whole_file(capsys: pytest.CaptureFixture[str]) -> None:
    """If a split makes equal parts, it is the inverse of a concat of equal parts only."""
    assert run(["rules", "audit", "rules.pb", "--json", "--reading", "split=halves"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reading"]["split"] == "equal parts along the axis"
    assert found["rules"][0]["status"] == "proved_with_conditions"
    assert found["rules"][0]["conditions"] == ["k3 == k2"] and "shape" in found["rules"][0]["reason"]


def test_a_bar_is_shown_on_a_terminal_and_goes_away() -> None:
    leader, follower = pty.openpty()
    command = [UNITYC, "rules", "audit", "rules.json", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, timeout=120, text=True)
    os.close(follower)
    told = os.read(leader, 10_000).decode()
    os.close(leader)
    assert done.returncode == 0 and json.loads(done.stdout) and "\x1b" not in done.stdout
    assert "] 0/5" in told and "] 4/5" in told and told.endswith("\r\x1b[K")


def test_an_interruption_leaves_what_is_there() -> None:
    Path("many.json").write_text(unity.text(*[unity.HALVES_OF_JOINED] * 400))
    command = [sys.executable, "-c", INTERRUPTED, "rules", "audit", "many.json", "--json"]
    begun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert begun.stderr is not None and begun.stderr.readline() == "2 done\n"
    os.killpg(begun.pid, signal.SIGINT)
    out, err = begun.communicate(timeout=120)
    assert begun.returncode == 130 and err.strip() == "unityc: interrupted"
    found = json.loads(out)
    assert len(found["rules"]) == 2 and found["counts"]["refuted"] == len(found["rules"])


INTERRUPTED = """
import signal, sys, time
from unity_dsl.commands import audit
from unity_dsl.cli import main

class Told(audit.Progress):
    def __call__(self, done):
        if done == 2:
            print("2 done", file=sys.stderr, flush=True)
            time.sleep(60)

audit.Progress = Told
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background inherits that it is ignored
main()
"""
