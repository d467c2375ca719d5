"""`unityc rules show`: the proof of a rule, and the costs of its two sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.rules.partial_equivalence.moves import LAYER

LAWS = """\
rule linear_of_linear(x: [b.., i], w: [h, i], v: [o, h])
  linear(linear(x, w), v) => linear(x, matmul(v, w))

rule linear_of_parts(x: [b, i], y: [b, j], w: [o, i], v: [o, j])
  linear(concat(x, y; dim=1), concat(w, v; dim=1)) => linear(x, w) + linear(y, v)

rule scaled(x: [m])
  scale(scale(x; factor=c); factor=d) => scale(x; factor=c * d)

rule moved(x: [p * m])
  combine[p; dim=0](partition[p; dim=0](x)) => x

rule cut(x: [m]) where m >= k
  relu(slice(x; dim=0, start=0, stop=k)) => slice(relu(x); dim=0, start=0, stop=k)
"""
FALSE = "rule relu_moves_out(x: [m, k], w: [k, n])\n  matmul(relu(x), w) => relu(matmul(x, w))\n"
OPEN = "rule shapes(x: [m], y: [n])\n  x + y => y + x\n"


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("laws.rules").write_text(LAWS)
    Path("false.rules").write_text(FALSE)
    Path("open.rules").write_text(OPEN)


# ---------------------------------------------------------------------------------------------- proofs


def test_show_shows_the_proof(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "show", "linear_of_parts", "--rules", "laws.rules"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("rule linear_of_parts(x: [b, i], y: [b, j], w: [o, i], v: [o, j])\n")
    for text in (
        "sizes      b, i, j, o: any whole numbers from 1\n",
        "left       output 0[k, l], k < b, l < o =\n",
        "sum(m < i + j) [m < i] w[l, m] * x[k, m]\n",
        "+ sum(m < i + j) [m >= i] v[l, m - i] * y[k, m - i]\n",
        "same_value   output 0: 2 terms (z3: 2 questions)\n",
        "4 questions, 2 of them answered `unsat`",
        "answer     proved\n",
    ):
        assert text in out
    assert "check-sat" not in out
    assert run(["rules", "show", "linear_of_parts", "--rules", "laws.rules", "--smt"]) == 0
    assert capsys.readouterr().out.count("(check-sat)") == 2


def test_show_speaks_of_ranks_and_of_what_is_not_proved(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "show", "linear_of_linear", "--rules", "laws.rules", "--rules", "false.rules"]) == 0
    assert "ranks      b.. of rank 1; so, too, for 3 other choices of ranks\n" in capsys.readouterr().out
    assert run(["rules", "show", "relu_moves_out", "--rules", "false.rules"]) == 0
    assert "answer     false: at m = " in capsys.readouterr().out
    assert run(["rules", "show", "shapes", "--rules", "open.rules"]) == 0
    assert "answer     not proved: same_shape: " in capsys.readouterr().out


def test_show_speaks_of_a_rule_for_which_there_is_no_method(capsys: pytest.CaptureFixture[str]) -> None:
    Path("open.rules").write_text("rule f(x: [m % 2])\n  relu(x) => relu(relu(x))\n")
    assert run(["rules", "show", "f", "--rules", "open.rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["", "answer     not proved: same_shape: no method for sizes with `%`"]


# ---------------------------------------------------------------------------------------------- prices


def price_lines(out: str) -> list[str]:
    """The last four lines: sizes, machine, left, right."""
    lines = out.splitlines()[-4:]
    assert lines[0].startswith("price      at ")
    return [line[11:] for line in lines]


def test_a_partially_equal_form_is_priced_with_its_correction(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "show", "conv2d_batch_to_height"]) == 0
    at, where, left, right = price_lines(capsys.readouterr().out)
    assert at == "at " + ", ".join(f"{name} = {LAYER[name]}" for name in "nbcohwae")
    assert where == "forward on one device of local, f32"
    # 2 * 32 * 64 * 56 * 56 * 64 * 9; and 4 rows at the top and the bottom that are computed twice
    assert left.split()[:1] == ["left"] and " 7.4 GFLOP " in left and left.endswith(" 1 kernel")
    assert " 7.93 GFLOP " in right and right.endswith(" 6 kernels")


def test_sizes_and_machine_of_prices_are_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "show", "conv2d_batch_to_height", "--at", "b=8", "-m", "dgx-h100"]) == 0
    at, where, left, _ = price_lines(capsys.readouterr().out)
    assert "b = 8," in at and "of dgx-h100" in where and " 1.85 GFLOP " in left


def test_any_rule_of_known_sizes_is_priced_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["rules", "show", "linear_of_parts", "--rules", "laws.rules"]
    assert run(command) == 0
    assert "price " not in capsys.readouterr().out
    assert run([*command, *(f"--at={name}=100" for name in "bijo")]) == 0
    _, _, left, right = price_lines(capsys.readouterr().out)
    assert "4 MFLOP" in left and "4.01 MFLOP" in right and left.endswith(" 3 kernels") and right.endswith(" 3 kernels")


@pytest.mark.parametrize(
    ("rule", "given", "message"),
    [
        ("linear_of_linear", ["i=2"], "for any rank"),
        ("scaled", ["m=2"], "for any real number"),
        ("moved", ["m=2", "p=2"], "for several devices"),
        ("linear_of_parts", ["b=2", "i=2"], "no size is given for j, o"),
        ("linear_of_parts", ["q=2"], "has no size `q`"),
        ("cut", ["m=2", "k=3"], "does not hold at m = 2, k = 3"),
        ("linear_of_parts", ["b=0"], "`b=0` is not NAME=SIZE"),
        ("linear_of_parts", ["b"], "`b` is not NAME=SIZE"),
    ],
)
def test_what_has_no_price_is_told_alone(
    rule: str, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [f"--at={text}" for text in given]
    assert run(["rules", "show", rule, "--rules", "laws.rules", *options]) == 2
    told = capsys.readouterr()
    assert told.out == "" and message in told.err


@pytest.mark.parametrize(
    ("text", "sizes"), [("rule f(x: [m % 2])\n  relu(x) => relu(relu(x))\n", ["m=3"]), (OPEN, ["m=2", "n=3"])]
)
def test_a_rule_whose_sides_have_no_shapes_is_told_alone(
    text: str, sizes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("open.rules").write_text(text)
    options = [f"--at={size}" for size in sizes]
    assert run(["rules", "show", text.split("(")[0].split()[1], "--rules", "open.rules", *options]) == 2
    told = capsys.readouterr()
    assert told.out == "" and "error[E510]" in told.err and "has no price: " in told.err
