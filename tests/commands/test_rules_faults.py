"""Several faults of one file: all are reported at once, and the rules without faults are answered."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from unity_dsl.cli import run

FALSE = "rule relu_moves_out(x: [m, k], w: [k, n])\n  matmul(relu(x), w) => relu(matmul(x, w))\n"
OTHER = "rule shapes(x: [m], y: [m])\n  x + y => y + x\n"


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.rules").write_text(OTHER)


FAULTY = """\
rule good(x: [m])
  relu(relu(x)) => relu(x)

rule broken(x: [m]
  relu(x) => x

rule unknown(x: [m])
  nothere(x) => x

## The bracket is never closed.
rule open(x: [m])
  relu((x) => x

rule unused(x: [m], y: [m])
  relu(x) => relu(x)

rule last(x: [m])
  relu(x) => relu(relu(x))
"""


def test_all_faults_of_a_file_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Faults are in the order of the text, after the answers to the other rules. The same holds for a file of
    operators.
    """
    Path("faulty.rules").write_text(FAULTY)
    assert run(["rules", "prove", "faulty.rules", "other.rules"]) == 2
    told = capsys.readouterr()
    assert [line.split()[1] for line in told.out.splitlines() if line.startswith("proved")][:2] == ["good", "last"]
    assert "shapes" in told.out
    places = re.findall(r"^faulty\.rules:(\d+):\d+: error\[(E\d+)\]", told.err, re.MULTILINE)
    assert [(int(line), code) for line, code in places][:3] == [(4, "E009"), (8, "E210"), (12, "E009")]
    assert len(places) == 4 and told.err.count("help: unityc explain") == 4

    Path("faulty.uop").write_text(
        "op a(x: [n]) -> y: [n]\n  y[n] = nosuch(x[n])\n\nop b(x: [n]) -> y: [n]\n  y[n] = x[m]\n"
    )
    assert run(["list", "ops", "--ops", "faulty.uop"]) == 2
    assert re.findall(r"^faulty\.uop:(\d+):\d+: error\[(E\d+)\]", capsys.readouterr().err, re.MULTILINE) == [
        ("2", "E103"),
        ("5", "E101"),
    ]
    Path("faulty.uop").write_text(
        "op a(x: [n]) -> y: [n]\n  y[n] = (x[n]\n\nop b(x: [n]) -> y: [n]\n  y[n] = x[n]\n\nop c(\n"
    )
    assert run(["list", "ops", "--ops", "faulty.uop"]) == 2
    assert len(re.findall(r"^faulty\.uop:\d+:\d+: error", capsys.readouterr().err, re.MULTILINE)) == 2


def test_faults_are_part_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    Path("faulty.rules").write_text(FAULTY)
    assert run(["rules", "prove", "faulty.rules", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [rule["name"] for rule in document["rules"]] == ["good", "last"]
    assert [error["line"] for error in document["errors"]][:3] == [4, 8, 12] and len(document["errors"]) == 4
    unknown = document["errors"][1]
    assert (unknown["code"], unknown["file"], unknown["column"]) == ("E210", "faulty.rules", 3)
    assert "nothere" in unknown["message"] and unknown["help"]


def test_two_rules_of_one_name_leave_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    Path("twice.rules").write_text(FALSE + OTHER + OTHER)
    assert run(["rules", "prove", "twice.rules", "--no-conditions"]) == 2
    told = capsys.readouterr()
    assert "relu_moves_out" in told.out and told.err.count("error[") == 1
