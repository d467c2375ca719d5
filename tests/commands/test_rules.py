"""`unityc rules`, and rules in a compile. Refused inputs are in tests/cases/cli_error."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sampling import of_the_day
from unity_dsl.cli import run
from unity_dsl.emit.plan_file import load_plan_file
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Answer
from unity_dsl.rules.certificate import Certificate, known_certificates, render_certificates
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.read import read_source

ROOT = Path(__file__).parent.parent.parent
LAWS = """\
rule linear_of_linear(x: [b.., i], w: [h, i], v: [o, h])
  linear(linear(x, w), v) => linear(x, matmul(v, w))

rule linear_of_parts(x: [b, i], y: [b, j], w: [o, i], v: [o, j])
  linear(concat(x, y; dim=1), concat(w, v; dim=1)) => linear(x, w) + linear(y, v)

rule sliced(x: [m]) where m >= k + n
  slice(x; dim=0, start=k, stop=k + n) => slice(x; dim=0, start=k, stop=k + n)
"""
FALSE = "rule relu_moves_out(x: [m, k], w: [k, n])\n  matmul(relu(x), w) => relu(matmul(x, w))\n"
OPEN = "rule shapes(x: [m], y: [n])\n  x + y => y + x\n"
MODEL = """\
model tiny[b = 8, d = 16, classes = 4]
  input x: f32[b, d]
  input target: int<classes>[b]
  weight w: f32[classes, d] ~ normal(0.02)
  loss cross_entropy(linear(x, w), target)
"""


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("laws.rules").write_text(LAWS)
    Path("false.rules").write_text(FALSE)
    Path("open.rules").write_text(OPEN)
    Path("model.udl").write_text(MODEL)
    return tmp_path


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*") if path.is_file()}


# ---------------------------------------------------------------------------------------------- prove


def test_prove_prints_a_line_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    before = files()
    assert run(["rules", "prove", "laws.rules"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["proved", "linear_of_linear"],
        ["proved", "linear_of_parts"],
        ["proved", "sliced"],
    ]
    assert lines[2].endswith("where m >= k + n") and all(" ms" in line for line in lines)
    assert printed.err == "" and files() == before


def test_prove_says_why_a_rule_is_not_proved(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "prove", "laws.rules", "false.rules", "open.rules"]) == 1
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.endswith(":")] == ["laws.rules:", "false.rules:", "open.rules:"]
    assert re.search(
        r"\nrefuted +relu_moves_out .*\n  sizes  .* m = 1, k = 1, n = 1\n  x  .*\n  w  .*\n"
        r"  output\[0, 0\], left   .*\n  output\[0, 0\], right  .*\n",
        out,
    )
    assert re.search(r"\nnot proved +shapes .*\n  same_shape: .*\n  at m = \d, n = \d: .*\n  holds where ", out)
    assert out.endswith("  holds where m == n (proved)\n  holds where m == 1 (proved)\n  holds where n == 1 (proved)\n")


def test_prove_without_conditions_looks_for_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_dsl.rules.rulebook.find_condition", lambda *_: pytest.fail("a condition is looked for"))
    assert run(["rules", "prove", "open.rules", "--no-conditions"]) == 1
    assert "holds where" not in capsys.readouterr().out


def test_a_condition_that_the_user_states_proves_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """A condition that is only found does not make a rule proved: it must be written down."""
    Path("open.rules").write_text(OPEN.replace("\n", " where m == n\n", 1))
    assert run(["rules", "prove", "open.rules", "--json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert rule["status"] == "proved" and rule["conditions"] == ["m == n"] and rule["counterexample"] is None


def test_prove_json_tells_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("false.rules").write_text("rule f(x: [m, n])\n  x[i, j] -> [j, i] => x\n")
    assert run(["rules", "prove", "false.rules", "--json"]) == 1
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert rule["conditions"] == ["m == 1", "n == 1"] and rule["status"] == "refuted"
    assert rule["counterexample"]["shapes"] == {"left": [1, 2], "right": [2, 1]}


def test_prove_json_tells_real_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    Path("false.rules").write_text("rule f(x: [m])\n  relu(scale(x; factor=c)) => scale(relu(x); factor=c)\n")
    assert run(["rules", "prove", "false.rules", "--json"]) == 1
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert rule["conditions"] == ["c >= 0"] and rule["counterexample"]["numbers"] == {"c": -1.0}


def test_a_quotient_by_zero_is_not_proved(capsys: pytest.CaptureFixture[str]) -> None:
    for number, call in enumerate(("slice(x; dim=0, start=0, stop=b // 0)", "slice(x; dim=0, start=0, stop=b % 0)")):
        Path("zero.rules").write_text(f"rule zero{number}(x: [b, c])\n  {call} => relu(x)\n")
        assert run(["rules", "prove", "zero.rules"]) in (1, 2)
        assert "internal error" not in capsys.readouterr().err


def test_prove_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "prove", "laws.rules", "false.rules", "open.rules", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["rules"]
    keys = {"name", "status", "conditions", "assumed", "reason", "ms", "counterexample"}
    assert all(set(rule) == keys and rule["ms"] > 0 for rule in document["rules"])
    rules = {rule["name"]: rule for rule in document["rules"]}
    assert [rule["status"] for rule in rules.values()] == ["proved"] * 3 + ["refuted", "not_proved"]
    assert rules["sliced"]["conditions"] == ["m >= k + n"]
    assert rules["relu_moves_out"]["conditions"] == [] and rules["shapes"]["conditions"] == ["m == n"]
    assert rules["shapes"]["reason"].startswith("same_shape: ")
    assert all((rule["reason"] is None) == (rule["status"] != "not_proved") for rule in rules.values())
    found = rules["relu_moves_out"]["counterexample"]
    assert set(found) == {"sizes", "output", "index", "left", "right"}
    assert set(found["sizes"]) == {"m", "k", "n"} and len(found["index"]) == 2 and found["left"] != found["right"]
    assert all((rule["counterexample"] is None) == (rule["status"] != "refuted") for rule in rules.values())


def test_prove_json_speaks_of_infinity_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.uop").write_text("op below(x: [b..]) -> y: [b..]\n  y[b..] = x[b..] - inf\n")
    Path("false.rules").write_text("rule f(x: [m])\n  below(x) => x\n")
    assert run(["rules", "prove", "false.rules", "--ops", "my.uop", "--json"]) == 1
    (rule,) = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))["rules"]
    assert rule["counterexample"]["left"] == "-inf"


def test_prove_writes_the_questions_to_z3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "prove", "laws.rules", "false.rules", "--smt", "asked/all"]) == 1
    asked = sorted(Path("asked/all").iterdir())
    assert {path.name.split(".")[0] for path in asked} == {"linear_of_parts", "sliced"}
    for path in asked:
        text = path.read_text()
        rule, _, obligation, suffix = path.name.split(".")
        assert suffix == "smt2" and f"; rule {rule}\n; obligation {obligation}: " in text
        assert "(set-info :status unsat)\n(set-logic QF_" in text and text.endswith("(check-sat)\n")


def test_progress_is_shown_on_a_terminal_and_goes_away() -> None:
    """stderr is a terminal, stdout is a pipe."""
    leader, follower = pty.openpty()
    command = [str(Path(sys.executable).parent / "unityc"), "rules", "prove", "laws.rules"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, timeout=120, text=True)
    os.close(follower)
    told = os.read(leader, 10_000).decode()
    os.close(leader)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3 and "\x1b" not in done.stdout
    assert "0/3 linear_of_linear" in told and "2/3 sliced" in told and told.endswith("\r\x1b[K")
    assert "condition" not in told


def test_an_interruption_is_not_taken_for_an_answer() -> None:
    """z3 works on a question that it cannot answer, and must not swallow the signal."""
    program = """
import os, signal, sys, threading
from unity_dsl.commands.console import keep_interruptions
from unity_dsl.prove.decision import integer_arithmetic as arithmetic
from unity_dsl.prove.normal_form.guard import compare
from unity_dsl.prove.normal_form.polynomial import Entry, number, of
import z3

class Hard(arithmetic._Translation):
    def condition(self, condition):
        x, y, z = z3.Ints("x y z")
        return x * x * x + y * y * y + z * z * z == 33

arithmetic._Translation = Hard
keep_interruptions()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background inherits that it is ignored
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for _ in range(200):
        arithmetic.Arithmetic().certain(compare("==", of("m"), of("n")))
    print("all answered")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout == "interrupted\n", done.stderr


def test_ctrl_c_has_its_own_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unity_dsl.rules.rulebook.prove_rule", interrupt)
    before = files()
    assert run(["rules", "prove", "laws.rules", "--write"]) == 128 + signal.SIGINT
    assert capsys.readouterr().err.strip() == "unityc: interrupted" and files() == before


# ---------------------------------------------------------------------------------------------- certificates


def test_certificates_are_written_for_what_is_proved_and_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "prove", "laws.rules", "--write"]) == 0
    written = Path("laws.certificates.json").read_text()
    assert set(json.loads(written)["rules"]) == {"linear_of_linear", "linear_of_parts", "sliced"}
    assert run(["rules", "verify", "laws.rules"]) == 0
    assert run(["rules", "prove", "laws.rules", "--write"]) == 0
    assert Path("laws.certificates.json").read_text() == written, "the same proofs, the same text"

    Path("laws.rules").write_text(LAWS + FALSE)
    assert run(["rules", "prove", "laws.rules", "--write"]) == 1
    assert Path("laws.certificates.json").read_text() == written
    capsys.readouterr()
    assert run(["rules", "verify", "laws.rules"]) == 1
    assert "refuted" in capsys.readouterr().out


def test_verify_finds_out_a_certificate_that_claims_more(capsys: pytest.CaptureFixture[str]) -> None:
    """The certificate is well formed and has the current hashes, but of no proof."""
    assert run(["rules", "prove", "laws.rules", "--write"]) == 0
    path = Path("laws.certificates.json")
    found = known_certificates(path)
    sliced = found["sliced"]
    forged = Certificate("sliced", sliced.declarations, sliced.obligations[:-1], sliced.prover, sliced.z3)
    path.write_text(render_certificates({**found, "sliced": forged}.values()))
    assert run(["rules", "verify", "laws.rules"]) == 2
    assert "error[E545]: the certificate of `sliced` is not that of its proof" in capsys.readouterr().err

    path.write_text(render_certificates(found.values()))
    Path("laws.rules").write_text(LAWS[: LAWS.index("rule sliced")])
    assert run(["rules", "verify", "laws.rules"]) == 2
    assert "has a certificate of `sliced`, a rule that is not there" in capsys.readouterr().err


def test_verify_tells_every_certificate_that_is_not_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "prove", "laws.rules", "--write"]) == 0
    text = LAWS.replace("matmul(v, w)", "1 * matmul(v, w)").replace("where m >= k + n", "where m >= k + n + 1")
    Path("laws.rules").write_text(text + "\nrule relu_twice(x: [b..])\n  relu(relu(x)) => relu(x)\n")
    capsys.readouterr()
    assert run(["rules", "verify", "laws.rules"]) == 2
    told = capsys.readouterr()
    assert told.out == "", "nothing is proved then"
    for name in ("linear_of_linear", "sliced"):
        assert f"the certificate of `{name}` is stale: the rule has changed since" in told.err
    assert told.err.count("error[E54") == 2

    Path("laws.rules").write_text(LAWS + "\n".join(f"\nrule {name}(x: [b..])\n  relu(x) => relu(x)\n" for name in "ab"))
    assert run(["rules", "verify", "laws.rules"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("error[E543]: there is no certificate of the rule") == 2


def test_verify_without_files_proves_the_shipped_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rules", "prove", "laws.rules", "--write"]) == 0
    monkeypatch.setattr("unity_dsl.commands.rules.shipped_files", lambda: [tmp_path / "laws.rules"])
    capsys.readouterr()
    assert run(["rules", "verify"]) == 0
    assert re.fullmatch(
        r"3 rules proved, 0 not proved, in [0-9.]+ s; median [0-9.]+ ms a proof\n", capsys.readouterr().out
    )
    Path("laws.rules").write_text(LAWS + FALSE)
    assert run(["rules", "verify"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("refuted    relu_moves_out") and "3 rules proved, 1 not proved" in out


# ---------------------------------------------------------------------------------------------- compile


def test_a_compile_keeps_the_texts_of_its_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model.udl", "-o", "out", "--devices", "2", "--rules", "laws.rules"]) == 0
    sources = load_plan_file(Path("out")).sources
    assert [(source.name, source.text) for source in sources.rules] == [("laws.rules", LAWS)]
    assert run(["model.udl", "-o", "plain", "--devices", "2"]) == 0
    assert load_plan_file(Path("plain")).sources.hash != sources.hash


def test_a_compile_proves_only_what_has_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["rules", "prove", "laws.rules", "--write"]) == 0
    proved: list[str] = []

    def note(rule: object, *_: object) -> None:
        proved.append(rule.name)  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr("unity_dsl.rules.rulebook.prove_rule", note)
    assert run(["model.udl", "-o", "out", "--rules", "laws.rules"]) == 0
    assert proved == []
    Path("laws.rules").write_text(LAWS.replace("m >= k + n", "m >= k + n + 1"))
    assert run(["model.udl", "-o", "out", "--rules", "laws.rules"]) == 130
    assert proved == ["sliced"]


GROWING = """
fn grow(x)
  derivative x: grow(x)
  fact grow(a + b) == grow(a) * grow(b)
  fact grow(a) > 0
  torch: torch.exp(x)
  numpy: np.exp(x)

op grows(x: [b..]) -> y: [b..]
  y[b..] = grow(x[b..])
"""
GROWN = """model grown[b = 4096, d = 512]
  input x: f32[b, d]
  input y: f32[b, d]
  z = grows(x) * grows(y)
  output z
"""
GROW_ONCE = """\
rule grow_once(x: [b..], y: [b..])
  grows(x) * grows(y) => grows(x + y)
"""


def test_a_compile_names_the_facts_that_its_rules_assume(capsys: pytest.CaptureFixture[str]) -> None:
    """The rule holds by a fact that is stated for a user's function and not proved."""
    Path("own.uop").write_text(GROWING)
    Path("grown.udl").write_text(GROWN)
    Path("grow.rules").write_text(GROW_ONCE)
    compiled = ["grown.udl", "--ops", ".", "--rules", "grow.rules"]
    fact = "grow(a + b) == grow(a) * grow(b)"

    def assumed(out: str) -> list[str]:
        (applied,) = json.loads((Path(out) / "plan.json").read_text())["rules"]
        assert applied["rule"] == "grow_once"
        return list(applied["assumed"])

    assert run([*compiled, "-o", "proved"]) == 0
    printed = capsys.readouterr().out
    assert any(line.split(maxsplit=1) == ["assumes", fact] for line in printed.splitlines())
    assert fact in assumed("proved")
    assert run(["rules", "prove", "grow.rules", "--ops", ".", "--write"]) == 0
    capsys.readouterr()
    assert run([*compiled, "-o", "certified", "--json"]) == 0
    assert fact in json.loads(capsys.readouterr().out)["assumed"]
    assert assumed("certified") == assumed("proved")
    assert run(["grown.udl", "--ops", ".", "-o", "plain"]) == 0
    assert "assumes" not in capsys.readouterr().out, "without the rule one device rests on nothing"


def test_the_shipped_rules_have_the_certificates_of_their_proofs(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks other files every day. After a change: `unityc rules prove rules/*.rules --write`."""
    shipped = of_the_day(sorted((ROOT / "rules").glob("*.rules")), 5)
    rules = sum(len(parse_rules(read_source(path)).rules) for path in shipped)
    assert shipped and run(["rules", "verify", *map(str, shipped)]) == 0
    told = capsys.readouterr().out
    assert len(re.findall(r"^proved ", told, re.MULTILINE)) == rules


def test_a_compile_with_certificates_loads_no_prover() -> None:
    assert run(["rules", "prove", "laws.rules", "--write"]) == 0
    program = (
        "import sys; from unity_dsl.cli import run; code = run(sys.argv[1:]); "
        "print('z3' in sys.modules, 'torch' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "model.udl", "-o", "out", "--devices", "2", "--rules", "laws.rules"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "False False\n")


# ---------------------------------------------------------------------------------------------- one rule among others

THREE = """\
rule first(x: [m])
  relu(relu(x)) => relu(x)

rule second(x: [m], y: [m])
  exp(x) * exp(y) => exp(x + y)

rule third(x: [m])
  relu(x) => relu(relu(x))
"""


def proving_until(name: str, error: BaseException) -> Callable[[RuleDecl, Library], Answer]:
    """The prover, with a fault at one rule."""
    from unity_dsl.prove.rule_proof import prove_rule

    def prove(rule: RuleDecl, library: Library) -> Answer:
        if rule.name == name:
            raise error
        return prove_rule(rule, library)

    return prove


@pytest.mark.parametrize("error", [RecursionError("too deep"), MemoryError(), AssertionError("odd"), KeyError("x")])
def test_a_fault_of_the_prover_leaves_the_other_answers(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_dsl.rules.rulebook.prove_rule", proving_until("second", error))
    Path("three.rules").write_text(THREE)
    assert run(["rules", "prove", "three.rules", "--json", "--no-conditions"]) == 1
    answers = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["rules"]}
    assert [answers[name]["status"] for name in ("first", "second", "third")] == ["proved", "not_proved", "proved"]
    assert type(error).__name__ in answers["second"]["reason"]


def test_an_interruption_leaves_what_is_finished(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_dsl.rules.rulebook.prove_rule", proving_until("third", KeyboardInterrupt()))
    Path("three.rules").write_text(THREE)
    assert run(["rules", "prove", "three.rules", "--json"]) == 130
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)["rules"]] == ["first", "second"]
    assert run(["rules", "prove", "three.rules"]) == 130
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in told if not line.startswith("  ")] == [
        ["proved", "first"],
        ["proved", "second"],
    ]
    # Below a rule are the facts its proof rests on: all of the second rule's are printed, none of the first's.
    assert "  assumes exp(a + b) == exp(a) * exp(b)" in told[2:] and not told[1].startswith("  ")


def test_a_rule_without_meaning_is_told_after_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    Path("three.rules").write_text(THREE)
    assert run(["rules", "prove", "three.rules", "--write"]) == 0
    Path("three.rules").write_text(THREE.replace("exp(x) *", "expp(x) *"))
    for command in ("prove", "verify"):
        capsys.readouterr()
        assert run(["rules", command, "three.rules"]) == 2
        told = capsys.readouterr()
        assert [line.split()[:2] for line in told.out.splitlines()] == [["proved", "first"], ["proved", "third"]]
        assert "three.rules:5:3: error[E210]: unknown operator `expp`" in told.err


def test_a_rule_is_shown_beside_one_without_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    Path("three.rules").write_text(THREE.replace("exp(x) *", "expp(x) *"))
    for name in ("first", "third"):
        assert run(["rules", "show", name, "--rules", "three.rules"]) == 0
        assert "answer     proved\n" in capsys.readouterr().out
    assert run(["rules", "show", "second", "--rules", "three.rules"]) == 2
    assert "three.rules:5:3: error[E210]: unknown operator `expp`" in capsys.readouterr().err
