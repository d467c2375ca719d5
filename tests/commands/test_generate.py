"""`unityc rules list` and `unityc rules generate`. Other refused inputs are in tests/cases/cli_error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.rules.certificate import called_names
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.read import read_source

from .test_rules import LAWS, files


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("laws.rules").write_text(LAWS)


def test_list_prints_a_line_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "list", "laws.rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=2) == [
        "linear_of_linear",
        "laws",
        "linear(linear(x, w), v) => linear(x, matmul(v, w))",
    ]
    assert len(lines) == 3
    assert run(["rules", "list", "laws.rules", "--json"]) == 0
    sliced = json.loads(capsys.readouterr().out)["rules"][2]
    assert (sliced["name"], sliced["theme"], sliced["conditions"]) == ("sliced", "laws", ["m >= k + n"])
    assert sliced["inputs"] == ["x: [m]"]
    assert run(["rules", "list"]) == 0
    assert "transpose_twice" in capsys.readouterr().out


HINGE = """\
op hinge_gate(x: [b..], g: [b..]; slope) -> y: [b..]
  y[b..] = relu(x[b..]) * g[b..] * slope
"""


def test_generate_writes_the_rules_of_an_operator_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ops").mkdir()
    Path("ops/hinge.uop").write_text(HINGE)
    table = ["[gates]", "operators = 2", 'about = "Gates"', "signatures = ["]
    table += ['  "(x: [m, n], g: [m, n]) hinge_gate(x, g; slope=c)",', '  "(x: [m, n]) relu(x)",', "]"]
    Path("table.toml").write_text("\n".join(table))
    command = ["rules", "generate", "--ops", "ops", "--only", "hinge_gate", "--table", "table.toml", "-o", "made"]
    assert run([*command, "--json", "--processes", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"counts", "themes", "median_ms", "files", "not_proved", "refuted"}
    assert told["themes"]["gates"]["contexts"] == told["counts"]["contexts"] > 0
    assert told["themes"]["gates"]["candidates"] == told["counts"]["enumerated candidates"] > 0
    assert told["files"]["gates"] > 0 and not told["not_proved"]
    made = parse_rules(read_source(Path("made/gates.rules"))).rules
    assert all("hinge_gate" in called_names(rule) for rule in made) and len(made) == told["files"]["gates"]
    assert run(["rules", "verify", "made/gates.rules", "--ops", "ops"]) == 0
    before = files()
    Path("made/gates.rules").write_text(LAWS)
    assert run([*command, "--processes", "1"]) == 2
    assert "was not written by `unityc rules generate`" in capsys.readouterr().err
    assert files() == before and Path("made/gates.rules").read_text() == LAWS


def test_generate_needs_no_table_for_an_operator_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Its declaration is enough: it commutes with a concatenation of any two operands."""
    Path("ops").mkdir()
    Path("ops/own.uop").write_text("op swell(x: [n]) -> y: [n]\n  y[n] = x[n] * exp(x[n])\n")
    assert run(["rules", "generate", "--ops", "ops", "--only", "swell", "-o", "made"]) == 0
    capsys.readouterr()
    text = Path("made/swell.rules").read_text()
    assert "(x: [m], y: [n])\n  concat(swell(x), swell(y); dim=0) => swell(concat(x, y; dim=0))" in text, text
    assert "relu(swell(x)) => swell(relu(x))" in text, text


def test_generate_refuses_what_no_signature_follows_from(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("partition", "E509"), ("max_pool2d", "E509"), ("hinge_gat", "E210")):
        assert run(["rules", "generate", "--only", name, "-o", "made"]) == 2
        assert f"error[{text}]" in capsys.readouterr().err
    for name, text in (("matrix", "E509"),):
        assert run(["rules", "generate", "--theme", name, "-o", "made"]) == 2
        assert f"error[{text}]" in capsys.readouterr().err
    assert not Path("made").exists()


SMALL = """\
[small]
about = "Sums, silu and transposes"
operators = 2
signatures = [
  "(x: [m, n], y: [m, n]) add(x, y)",
  "(x: [m, n]) silu(x)",
  "(x: [m, n]) x[m, n] -> [n, m]",
]
"""
INTERRUPTED = """
import signal, sys, time
from unity_dsl.cli import main
from unity_dsl.commands import generate

def tell(what, done, whole):
    if (what, done) == ("enumerated", 3):
        print("3 done", file=sys.stderr, flush=True)
        time.sleep(60)

generate.tell = tell
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background inherits that it is ignored
main()
"""


def test_an_interrupted_generation_keeps_its_contexts_and_ends_with_the_same_files() -> None:
    Path("table.toml").write_text(SMALL)
    generate = ["rules", "generate", "--table", "table.toml", "-o"]
    command = [sys.executable, "-c", INTERRUPTED, *generate, "made", "--cache", "cache"]
    begun = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert begun.stderr is not None and begun.stderr.readline() == "3 done\n"
    os.killpg(begun.pid, signal.SIGINT)
    _, told = begun.communicate(timeout=120)
    assert begun.returncode == 128 + signal.SIGINT and told.strip() == "unityc: interrupted"
    kept = {path: path.stat().st_mtime_ns for path in Path("cache").glob("context-small-*.json")}
    # Three are reported; processes may have finished more, ahead of one that takes longer, and those are kept as well.
    assert len(kept) >= 3 and not list(Path("made").glob("*"))
    assert run([*generate, "made", "--cache", "cache"]) == 0
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items()), "enumerated again"
    assert run([*generate, "alone", "--processes", "1"]) == 0
    for name in ("small.rules", "small.certificates.json"):
        assert Path("made", name).read_bytes() == Path("alone", name).read_bytes()
    assert "transpose_commutes_with_silu" in Path("made", "small.rules").read_text()
