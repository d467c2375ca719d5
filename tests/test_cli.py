"""The command line: every bad input of tests/cases/cli_error gives one diagnostic and changes nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.prove.answer import Proved
from unity_dsl.rules.certificate import certificates_path, certify, render_certificates
from unity_dsl.rules.rulebook import prove_rules
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.read import read_source

ROOT = Path(__file__).parent.parent
CASES = sorted(path for path in (ROOT / "tests" / "cases" / "cli_error").iterdir())
UNITYC = str(Path(sys.executable).parent / "unityc")

MODEL = """\
model tiny[b = 8, d = 16, classes = 4]
  preset small: d = 8
  input x: f32[b, d]
  input target: int<classes>[b]
  weight w: f32[classes, d] ~ normal(0.02)
  logits = linear(x, w)
  loss cross_entropy(logits, target)
  output logits
"""


def deep_expression(folder: Path) -> None:
    depth = 10_000
    text = MODEL.replace("linear(x, w)", "relu(" * depth + "linear(x, w)" + ")" * depth)
    (folder / "model.udl").write_text(text)


def deep_operator(folder: Path) -> None:
    depth = 10_000
    (folder / "my_ops").mkdir()
    body = "(" * depth + "x[b..]" + ")" * depth
    (folder / "my_ops" / "deep.uop").write_text(f"op deep(x: [b..]) -> y: [b..]\n  y[b..] = {body}\n")


def deep_repeat(folder: Path) -> None:
    lines = [f"{' ' * (i + 1)}repeat 2 as r{i}" for i in range(1_000)]
    (folder / "model.udl").write_text("\n".join(["model tiny[b = 8]", *lines]) + "\n")


def stale_certificate(folder: Path) -> None:
    """Writes a certificate, and then changes the rule."""
    path, known = folder / "laws.rules", load_library()
    verdicts = prove_rules(read_source(path), known)
    proofs = [(verdict.rule, verdict.answer) for verdict in verdicts if isinstance(verdict.answer, Proved)]
    text = render_certificates(certify(rule, proof, known) for rule, proof in proofs)
    certificates_path(path).write_text(text)
    path.write_text(path.read_text().replace("linear(linear(x, w), v) =>", "relu(linear(linear(x, w), v)) =>"))


def pipe(folder: Path, name: str) -> None:
    """A pipe into which nobody writes: opening it for reading would block for ever."""
    (folder / name).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / name)


def functions(folder: Path, count: int, definition: str) -> None:
    """Writes functions, each defined by the previous one, and an operator that calls the last."""
    lines = ["fn f0(x) = 2 * x", "  derivative x: 2"]
    for number in range(1, count):
        lines += [f"fn f{number}(x) = {definition.format(f'f{number - 1}(x)')}", "  derivative x: 1"]
    lines += ["op last(x: [b..]) -> y: [b..]", f"  y[b..] = f{count - 1}(x[b..])"]
    (folder / "my_ops").mkdir()
    (folder / "my_ops" / "functions.uop").write_text("\n".join(lines) + "\n")


GENERATED: dict[str, Callable[[Path], object]] = {
    "binary_file": lambda folder: (folder / "model.udl").write_bytes(bytes(range(256)) * 8),
    "not_utf8": lambda folder: (folder / "model.udl").write_bytes("# modèle\n".encode("latin-1") + MODEL.encode()),
    "ten_megabytes": lambda folder: (folder / "model.udl").write_text(MODEL + "# padding\n" * 1_000_000),
    "nesting_10000_deep": deep_expression,
    "nesting_10000_deep_operator": deep_operator,
    "repeats_1000_deep": deep_repeat,
    "certificate_stale": stale_certificate,
    "pipe_as_model": lambda folder: pipe(folder, "model.udl"),
    "pipe_as_machine": lambda folder: pipe(folder, "machine.toml"),
    "pipe_as_rules": lambda folder: pipe(folder, "laws.rules"),
    "pipe_as_operators": lambda folder: pipe(folder, "my_ops/mine.uop"),
    "pipe_as_plan": lambda folder: pipe(folder, "out/plan.json"),
    "machine_nested_deeply": lambda folder: (folder / "machine.toml").write_text("a = " + "[" * 9999 + "]" * 9999),
    "functions_that_double": lambda folder: functions(folder, 40, "{0} + {0}"),
    "functions_nested_2000_deep": lambda folder: functions(folder, 2000, "1 + {0}"),
    "audit_nested_deeply": lambda folder: (folder / "rules.json").write_text('{"rule": ' * 99_999),
    "audit_large_file": lambda folder: (folder / "rules.json").write_text('{"rule": [' + "{}, " * 2_200_000),
    "audit_number_of_5000_digits": lambda folder: (folder / "rules.json").write_text('{"rule": ' + "1" * 5000 + "}"),
    "name_that_is_not_utf8": lambda folder: shutil.copy(folder / "model.udl", os.fsdecode(b"caf\xe9.udl")),
}
"""Inputs that are too large or too odd to be kept as files."""

ODD_WORDS = {
    "seed_of_5000_digits": "1" * 5000,
    "name_of_5000_letters": "x" * 5000,
    "name_that_is_not_utf8": os.fsdecode(b"caf\xe9.udl"),
}
"""The texts that replace `@` in a command."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_is_told_in_one_diagnostic(
    case: Path, workplace: Path, capsys: pytest.CaptureFixture[str], golden: Callable[[Path, str], None]
) -> None:
    if (case / "input").exists():
        shutil.copytree(case / "input", workplace, dirs_exist_ok=True)
    if case.name in GENERATED:
        GENERATED[case.name](workplace)
    before = contents(workplace)
    command = (case / "command").read_text().replace("@", ODD_WORDS.get(case.name, "@"))
    program, *arguments = shlex.split(command)
    assert program == "unityc"

    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert not printed.out or ("--json" in arguments and json.loads(printed.out)["errors"])
    text = printed.err.replace(f"{workplace}{os.sep}", "").replace(f"{ROOT}{os.sep}", "")
    assert len(re.findall(r"error\[(E\d{3})\]", text)) == 1, text
    assert "Traceback" not in text
    assert len(text) < 2000, "a diagnostic fits a screen"
    assert contents(workplace) == before, "nothing half-written"

    golden(case / "expected", text)


def test_every_generated_case_has_its_folder() -> None:
    assert set(GENERATED) <= {case.name for case in CASES}


def test_every_code_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for code in CODES:
        assert run(["explain", code.lower()]) == 0
        assert capsys.readouterr().out.startswith(f"{code}: ")


# ---------------------------------------------------------------------------------------------- compile


@pytest.fixture
def model(workplace: Path) -> Path:
    path = workplace / "model.udl"
    path.write_text(MODEL)
    return path


def test_compile_prints_a_summary_and_writes_the_program(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model.udl", "-o", "out", "--devices", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert re.match(r"plan +tiny, on 2 devices of local, by `auto`\n", printed.out)
    assert {"model.py", "parallel.py", "train.py", "plan.json"} <= {path.name for path in Path("out").iterdir()}


def test_compile_json_is_one_document(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compile", "model.udl", "-o", "out", "--devices", "4", "--preset", "small", "--set", "b=16", "--json"]
    assert run([*arguments, "--mesh", "2,2"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["mesh"] == {"devices_outer": 2, "devices_inner": 2}
    assert summary["parameters"] == {"b": 16, "d": 8, "classes": 4}
    assert list(summary["layouts"]) == ["w"]
    assert all(Path(path).exists() for path in summary["files"])
    parts = summary["cost"]
    assert parts["seconds"] == pytest.approx(parts["compute"] + parts["communication"] + parts["update"])


def test_the_mesh_says_how_many_devices(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model.udl", "-o", "out", "--mesh", "2,2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == 4


def test_a_pin_is_kept(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for layout in ("S0", "S1", "I"):
        assert run(["model.udl", "-o", f"out-{layout}", "--devices", "2", "--pin", f"w={layout}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["layouts"] == {"w": layout}


def test_compiling_twice_gives_the_same_files(model: Path) -> None:
    assert run(["model.udl", "-o", "out", "--devices", "2"]) == 0
    first = contents(Path("out"))
    assert run(["model.udl", "-o", "out", "--devices", "2"]) == 0
    assert contents(Path("out")) == first


def test_an_edited_program_is_kept_unless_forced(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model.udl", "-o", "out"]) == 0
    with (Path("out") / "train.py").open("a") as file:
        file.write("# mine\n")
    edited = contents(Path("out"))
    assert run(["model.udl", "-o", "out"]) == 2
    assert "error[E402]" in capsys.readouterr().err
    assert contents(Path("out")) == edited
    assert run(["model.udl", "-o", "out", "--force"]) == 0
    assert "# mine" not in (Path("out") / "train.py").read_text()


def test_a_failed_compile_leaves_an_earlier_program_alone(model: Path) -> None:
    assert run(["model.udl", "-o", "out"]) == 0
    before = contents(Path("out"))
    model.write_text(MODEL.replace("linear", "liner"))
    assert run(["model.udl", "-o", "out"]) == 2
    assert contents(Path("out")) == before


# ---------------------------------------------------------------------------------------------- other commands


def test_list_names_what_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        "ops": {"linear", "softmax", "partition"},
        "machines": {"local", "summit", "dgx-a100", "dgx-h100", "h200"},
        "strategies": {"auto", "data_parallel", "single"},
    }
    for kind, names in expected.items():
        assert run(["list", kind]) == 0
        assert names <= {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_explain_speaks_of_every_declaration(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("softmax", "partition", "relu", "exp"):
        assert run(["explain", name]) == 0
        assert name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("partition", "--pin 'w=S0'"),
        ("cyclic", "a pin may name it, with the dimension that is cut: --pin 'w=cyclic(0)'"),
        ("combine", "no pin names it: `combine` does not put one device axis first"),
        ("halo", "no pin may name it: a plan chooses `before`, `after`"),
    ],
)
def test_explain_says_whether_a_pin_may_name_a_parallel_op(
    name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cyclic.uop").write_text(
        "parallel cyclic[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]\n"
        "  where rank(f) == dim, d == p * e\n  y[@p, f.., j, g..] = x[f.., j * |p| + @p, g..]\n"
    )
    assert run(["explain", name, "--ops", str(tmp_path)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("pins "))
    assert told in line


def test_explain_names_the_operators_that_apply_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "tanh"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("used by "))
    assert "gelu_tanh" in line.replace(",", " ").split()


def test_list_shows_whole_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "## What it does, which is\n## nothing. More of it.\nop same(x: [b..]) -> y: [b..]\n  y[b..] = x[b..]\n"
    (tmp_path / "same.uop").write_text(text)
    assert run(["list", "ops", "--ops", str(tmp_path)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("same "))
    assert line.split(maxsplit=1)[1] == "What it does, which is nothing."


def test_kernels_that_nothing_needs_are_told(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("same.udl").write_text("model same[b = 4]\n  input x: f32[b]\n  output x\n")
    for kernels, told in (("triton", True), ("torch", False)):
        assert run(["same.udl", "-o", "out", "--kernels", kernels]) == 0
        assert ("there is no kernels.py" in capsys.readouterr().out) is told and not Path("out/kernels.py").exists()


def test_fmt_formats_in_place_and_check_only_tells(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text(MODEL.replace("x: f32[b, d]", "x :f32[b,d]"))
    assert run(["fmt", "--check", "model.udl"]) == 1
    assert capsys.readouterr().out == "would format model.udl\n"
    assert run(["fmt", "model.udl"]) == 0
    assert model.read_text() == MODEL
    assert run(["fmt", "--check", "model.udl"]) == 0
    assert [path.name for path in Path().iterdir()] == ["model.udl"]


def test_fmt_writes_nothing_where_one_file_is_faulty(model: Path) -> None:
    model.write_text(MODEL.replace("x: f32[b, d]", "x :f32[b,d]"))
    before = model.read_text()
    Path("faulty.udl").write_text("model [\n")
    assert run(["fmt", "model.udl", "faulty.udl"]) == 2
    assert model.read_text() == before


def test_fmt_formats_rules(model: Path) -> None:
    Path("laws.rules").write_text("rule twice( x:[b..] )\n    relu(relu(x))=>relu(x) # law\n")
    assert run(["fmt", "laws.rules", "model.udl"]) == 0
    assert Path("laws.rules").read_text() == "rule twice(x: [b..])\n  relu(relu(x)) => relu(x)  # law\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["model.udl", "--set", "d"],
        ["model.udl", "--mesh", "two"],
        ["model.udl", "--devices", "two"],
        ["model.udl", "--nothing"],
        ["fmt", "model.txt"],
        ["chek", "out"],
        [],
    ],
    ids=" ".join,
)
def test_misuse_of_the_command_line_is_told_with_code_2(
    arguments: list[str], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert "Usage: unityc" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["model.udl"]


# ---------------------------------------------------------------------------------------------- internal faults


def test_a_fault_of_ours_is_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise KeyError("a thing\nthat should be there")

    monkeypatch.setattr("unity_dsl.compilation.compile_model", break_down)
    assert run(["model.udl"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("unityc: internal error: KeyError")
    assert "UNITY_DEBUG=1" in second
    monkeypatch.setenv("UNITY_DEBUG", "1")
    with pytest.raises(KeyError):
        run(["model.udl"])


def test_interruption_has_its_own_code(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unity_dsl.compilation.compile_model", interrupt)
    assert run(["model.udl"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_closed_pipe_is_no_fault_to_speak_of() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(UNITYC)} list ops | head -1"], capture_output=True, text=True, timeout=60
    )
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)


def test_a_plan_that_does_not_fit_is_written_if_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = (ROOT / "machines" / "local.toml").read_text().replace("memory_gb = 4", "memory_gb = 0.000001")
    (tmp_path / "small.toml").write_text(machine)
    (tmp_path / "model.udl").write_text(MODEL)
    for fits in (False, True):
        named = "local" if fits else str(tmp_path / "small.toml")
        arguments = [str(tmp_path / "model.udl"), "-o", str(tmp_path / f"out{fits}"), "--machine", named]
        if not fits:
            assert run(arguments) == 2 and not (tmp_path / "outFalse").exists()
            assert "error[E313]: every device would hold" in capsys.readouterr().err
            arguments.append("--force")
        assert run(arguments) == 0
        shown = capsys.readouterr()
        assert ("warning[W301]: every device would hold" in shown.err) is not fits
        assert re.search(
            r"^memory +\S+ kB of \S+ (?:kB|GB|bytes) a device: parameters 256 bytes, ", shown.out, re.MULTILINE
        )
        plan = json.loads((tmp_path / f"out{fits}" / "plan.json").read_text())
        assert [found["code"] for found in plan["warnings"]] == ([] if fits else ["W301"])
        memory = plan["cost"]["memory"]
        assert memory["total"] == sum(count for name, count in memory.items() if name not in ("total", "at")) > 0
    assert run([*arguments, "--force", "--memory", "1kB"]) == 0
    assert "error" not in capsys.readouterr().err
    assert json.loads((tmp_path / "outTrue" / "plan.json").read_text())["request"]["memory"] == 1000
    assert run([*arguments, "--force", "--memory", "1"]) == 2
    assert "error[E312]: `1` has no unit" in capsys.readouterr().err
    assert run([*arguments, "--json", "--force"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["cost"]["memory"] == memory and summary["warnings"] == []


def test_an_interruption_while_a_fault_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(diagnostic: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unity_dsl.cli.show_diagnostic", interrupted)
    assert run(["explain", "no_such_operator"]) == 130
    assert capsys.readouterr().err == "unityc: interrupted\n"


def test_an_interruption_while_modules_are_imported() -> None:
    """The command line itself is interrupted, in its own process."""
    program = """
import sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "unity_dsl.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
import runpy

runpy.run_module("unity_dsl", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "unityc: interrupted\n")
