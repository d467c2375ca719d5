"""Lines, blocks, comments, brackets and depth."""

from __future__ import annotations

import sys
from fractions import Fraction

import pytest

from tests.syntax.samples import MODEL, OPS
from unity_dsl.syntax.ast import Assign, Name, Number
from unity_dsl.syntax.diagnostic import Diagnostic, InputError
from unity_dsl.syntax.format import format_model
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.span import Source
from unity_dsl.syntax.token_lines import MAX_NESTING, MAX_OPERATORS


def model(*lines: str) -> str:
    return "\n".join(["model m", *(f"  {line}" for line in lines), ""])


def operator(value: str) -> str:
    return f"op f(x: [i]) -> y: [i]\n  y[i] = {value}\n"


def refused(text: str, language: str = "udl") -> Diagnostic:
    with pytest.raises(InputError) as caught:
        (parse_ops if language == "uop" else parse_model)(Source(f"f.{language}", text))
    return caught.value.diagnostic


def test_line_ends_of_another_system_change_nothing() -> None:
    assert parse_ops(Source("a", OPS.replace("\n", "\r\n"))) == parse_ops(Source("a", OPS))
    assert parse_model(Source("a", MODEL.replace("\n", "\r\n"))) == parse_model(Source("a", MODEL))


def test_a_missing_final_newline_changes_nothing() -> None:
    for ending in ("", "  ", "\n\n\n", "\n# the end", "\n  # the end", "  # the end", "\n   \t "):
        assert parse_model(Source("a", MODEL.rstrip() + ending)) == parse_model(Source("a", MODEL))


def test_blank_lines_and_comments_may_stand_anywhere() -> None:
    for between in ("\n", "   \n", "# comment\n", "          # comment ( [\n", "\n\n  # a\n\n"):
        spread = "".join(line + between for line in MODEL.splitlines(keepends=True) if not line.startswith("##"))
        expected = parse_model(Source("a", "".join(x for x in MODEL.splitlines(True) if not x.startswith("##"))))
        assert parse_model(Source("a", between + spread)) == expected


def test_lines_go_on_inside_brackets() -> None:
    text = model("x = relu(", "a  # first", "", "   + b)", "loss x")
    assert len(parse_model(Source("a", text)).model.body) == 2


def test_any_width_of_indentation_makes_a_block() -> None:
    text = "model m\n   repeat 2 as l\n      x = y\n      repeat 3 as k\n       x = z\n   loss x\n"
    assert format_model(Source("a", text)) == model(
        "repeat 2 as l", "  x = y", "  repeat 3 as k", "    x = z", "loss x"
    )


@pytest.mark.parametrize("indentation", ["\t", "  \t", "\t  ", "        \t"])
def test_a_tab_in_the_indentation_is_refused(indentation: str) -> None:
    text = f"model m\n{indentation}loss x\n"
    found = refused(text)
    assert (found.code, found.span and found.span.start) == ("E007", text.index("\t"))


def test_tabs_elsewhere_are_space() -> None:
    assert parse_model(Source("a", "model m\n\t\n  loss\tx\t# a\tb\n\t")).model.name == "m"


def test_a_dedent_to_nowhere() -> None:
    found = refused("model m\n    repeat 2 as l\n        x = y\n      loss x\n")
    assert (found.code, str(found.span)) == ("E008", "f.udl:4:7")
    assert "0, 4 and 8" in found.help


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (model("x = f(a", "loss x"), "E009", "f.udl:2:8"),
        (model("x = f(a[b]"), "E009", "f.udl:2:8"),
        (model("x = f(a", "y = g(x))", "loss y"), "E009", "f.udl:2:8"),
        (model("x = f(a))", "loss x"), "E011", "f.udl:2:11"),
        (model("x = f(a]", "loss x"), "E011", "f.udl:2:10"),
        (")", "E011", "f.udl:1:1"),
    ],
)
def test_brackets_that_do_not_match(text: str, code: str, place: str) -> None:
    found = refused(text)
    assert (found.code, str(found.span)) == (code, place)


DEPTH = 10_000
DEEP = [
    pytest.param("uop", operator("(" * DEPTH + "1" + ")" * DEPTH), id="parentheses"),
    pytest.param("uop", operator("(" * DEPTH), id="open parentheses"),
    pytest.param("uop", operator("x[" * DEPTH + "1" + "]" * DEPTH), id="reads"),
    pytest.param("uop", operator("- " * DEPTH + "1"), id="signs"),
    pytest.param("uop", operator("1" + " + 1" * DEPTH), id="sum"),
    pytest.param("uop", operator("1" + " * 1" * DEPTH), id="product"),
    pytest.param("uop", operator("sum(i) " * DEPTH + "1"), id="reductions"),
    pytest.param("uop", operator("1").replace("y[i] =", "torch: " + "f(" * DEPTH + ")" * DEPTH), id="native calls"),
    pytest.param("udl", model("loss " + "f(" * DEPTH + "x" + ")" * DEPTH), id="calls"),
    pytest.param("udl", model("loss x" + " / x" * DEPTH), id="quotient"),
    pytest.param("udl", model("loss x" + "[" * DEPTH), id="patterns"),
    pytest.param("udl", "model m[d = " + "(" * DEPTH + "1" + ")" * DEPTH + "]\n  loss x\n", id="numbers"),
    pytest.param("udl", "model m\n" + "".join(" " * i + f"repeat 2 as l{i}\n" for i in range(1, 2000)), id="blocks"),
]


@pytest.mark.parametrize(("language", "text"), DEEP)
def test_depth_gives_one_diagnostic_in_linear_work(language: str, text: str) -> None:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        found = refused(text, language)
    finally:
        sys.setprofile(None)
    assert found.code == "E005"
    assert calls < 30 * len(text)


def test_what_is_just_allowed_parses_on_a_short_stack() -> None:
    """Deepest brackets, deepest chain, deepest blocks: parser, formatter and comparison still have stack to spare."""
    chain = " + ".join(["x"] * (MAX_OPERATORS + 1))
    brackets = MAX_NESTING - 1
    for value in (chain, "f(" * brackets + chain + ")" * brackets, "-" * MAX_OPERATORS + "x"):
        source = Source("a", model(f"loss {value}"))
        assert parse_model(source) == parse_model(Source("a", format_model(source)))
    blocks = "".join(" " * i + f"repeat 2 as l{i}\n" for i in range(1, MAX_NESTING)) + " " * MAX_NESTING + "x = y\n"
    source = Source("a", "model m\n" + blocks)
    assert parse_model(source) == parse_model(Source("a", format_model(source)))


def test_long_lists_are_not_deep() -> None:
    assert refused(model(f"loss f({', '.join(['x'] * 3000)}, )")).code == "E010"
    text = model(f"loss f({', '.join(['x'] * 3000)})", *[f"x{i} = y" for i in range(3000)])
    assert len(parse_model(Source("a", text)).model.body) == 3001


@pytest.mark.parametrize(("char", "told"), [("$", "`$`"), ('"', "strings"), ("\xa0", "no-break"), ("\x07", "U+0007")])
def test_a_foreign_character(char: str, told: str) -> None:
    found = refused(model(f"x = {char}y"))
    assert (found.code, str(found.span)) == ("E006", "f.udl:2:7")
    assert told in found.message


@pytest.mark.parametrize("number", ["1" * 101, "1e999", "1e-99999999", "0." + "1" * 200])
def test_numbers_without_a_worth(number: str) -> None:
    assert refused(operator(number), "uop").code == "E019"


def test_numbers() -> None:
    """A float is the decimal as written. A number that no float is written as is a fraction."""
    values = {
        "0": 0,
        "007": 7,
        "1e-5": 1e-5,
        "2.50": 2.5,
        "3E2": 300.0,
        "1e-999": Fraction(1, 10**999),
        "-4": -4,
        "- 1e-5": -1e-5,
    }
    for text, value in values.items():
        statement = parse_model(Source("a", model(f"x = {text}"))).model.body[0]
        assert isinstance(statement, Assign) and isinstance(statement.value, Number)
        assert statement.value.value == value and type(statement.value.value) is type(value)


def test_words_that_begin_like_keywords_are_names() -> None:
    for name in ("losses", "input_", "weights", "repeat2", "int8", "ast", "returned", "sum", "op"):
        statement = parse_model(Source("a", model(f"x = {name}"))).model.body[0]
        assert statement == Assign(("x",), Name(name))
