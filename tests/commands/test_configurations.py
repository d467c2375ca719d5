"""`unityc rules configurations`: the table, as text and as data, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.sampling import of_the_day
from unity_dsl.cli import run as main
from unity_dsl.cli import unityc


def run(*arguments: str) -> Result:
    return CliRunner().invoke(unityc, ["rules", "configurations", *arguments])


def test_every_axis_has_a_line() -> None:
    result = run("softmax", "concat")
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert [line[:4] for line in lines[:2]] == [
        ["softmax", "b..", "mapped", "proved"],
        ["softmax", "c", "mapped", "proved"],
    ]
    assert ["concat", "d", "blocked", "blocked"] in [line[:4] for line in lines]
    assert "0 not proved" in result.output


@pytest.mark.parametrize(("name", "needed"), of_the_day([("padded_attention", True), ("softmax", False)], 1))
def test_assumed_facts_are_named_where_a_proof_needs_them(name: str, needed: bool) -> None:
    """The gradients of attention with key padding need one; softmax, forward and backward, needs none."""
    lines = run(name).output.splitlines()
    assert ("  assumes exp(a + b) == exp(a) * exp(b)" in lines) == any("assumes" in line for line in lines) == needed


def test_the_table_as_data() -> None:
    result = run("linear", "--json")
    rows = json.loads(result.output)["configurations"]
    assert {row["subject"]: row["class"] for row in rows if row["class"] != "linear"} == {
        "b..": "mapped",
        "o": "mapped",
        "i": "summed",
    }
    assert all(row["status"] == "proved" and row["theorems"] == 3 and row["ms"] > 0 for row in rows)


def test_an_operator_of_one_s_own(tmp_path: Path) -> None:
    text = "op twice(x: [a], w: [a]) -> y: [a]\n  y[a] = x[a] + x[a] + w[0]\n"
    (tmp_path / "own.uop").write_text(text)
    result = run("twice", "--ops", str(tmp_path))
    assert result.exit_code == 0
    assert "read at other positions than its own" in result.output


def test_an_operator_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "configurations", "sofmax"]) == 2
    assert "did you mean `softmax`?" in capsys.readouterr().err
