"""Diagnostics as text: place, excerpt, caret, help."""

from __future__ import annotations

import pytest

from unity_dsl.syntax.diagnostic import Diagnostic, Label
from unity_dsl.syntax.render import LONGEST, render
from unity_dsl.syntax.span import Source, Span


def span(text: str, part: str, name: str = "f.udl") -> Span:
    start = text.index(part)
    return Span(Source(name, text), start, start + len(part))


def test_the_whole_form() -> None:
    source = Source("ops/linear.uop", "op linear(x: [b.., i]) -> y: [b..]\n  y[b..] = sum(i) x[b.., k] * 2\n")
    at = Span(source, source.text.index("k]"), source.text.index("k]") + 1)
    note = Label(Span(source, 10, 20), "declared here")
    found = Diagnostic("E101", "index `k` is not bound", at, "did you mean `i`?", "first\nsecond", (note,))
    assert render(found) == "\n".join(
        [
            "ops/linear.uop:2:26: error[E101]: index `k` is not bound",
            "  |  y[b..] = sum(i) x[b.., k] * 2",
            "  |                         ^ did you mean `i`?",
            "ops/linear.uop:1:11: note: declared here",
            "  |  op linear(x: [b.., i]) -> y: [b..]",
            "  |            ^^^^^^^^^^",
            "help: first",
            "help: second",
            "help: unityc explain E101",
        ]
    )


def test_without_a_place() -> None:
    assert render(Diagnostic("E001", "cannot read")) == "error[E001]: cannot read\nhelp: unityc explain E001"
    assert render(Diagnostic("E001", "m", label="why")).splitlines()[1] == "  |  why"
    assert render(Diagnostic("W301", "too large")).splitlines()[0] == "warning[W301]: too large"


def excerpt(text: str, part: str) -> list[str]:
    return render(Diagnostic("E010", "m", span(text, part), "label")).splitlines()[1:-1]


def test_carets_stand_under_tabs_wide_and_combining_characters() -> None:
    assert excerpt("x\t= yy + z", "yy") == ["  |  x    = yy + z", "  |         ^^ label"]
    assert excerpt("# 漢字 yy", "yy") == ["  |  # 漢字 yy", "  |         ^^ label"]
    assert excerpt("# 漢字 yy", "漢字") == ["  |  # 漢字 yy", "  |    ^^^^ label"]
    assert excerpt("# e\u0301 yy", "yy") == ["  |  # e\u0301 yy", "  |      ^^ label"]


def test_characters_that_would_move_the_cursor_are_not_printed() -> None:
    shown = "\n".join(excerpt("x \x1b[31m \u202e yy\r", "yy"))
    assert "\x1b" not in shown and "\u202e" not in shown and "\r" not in shown


def test_a_span_of_several_lines_shows_its_first() -> None:
    assert excerpt("  x = f(a,\n b)", "f(a,\n b)") == ["  |  x = f(a,", "  |      ^^^^ label"]


def test_an_empty_span_behind_the_line() -> None:
    text = "  x = \n"
    assert render(Diagnostic("E010", "m", Span(Source("f", text), 6, 6), "here")).splitlines()[:3] == [
        "f:1:7: error[E010]: m",
        "  |  x =",
        "  |      ^ here",
    ]


@pytest.mark.parametrize("text", ["", "\n", "x", "x\n"])
def test_every_offset_of_every_text_renders(text: str) -> None:
    for offset in range(len(text) + 1):
        assert render(Diagnostic("E010", "m", Span(Source("f", text), offset, offset))).endswith("explain E010")


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "  x = " + "a + " * 1000 + "B" + " + a" * 1000
    shown, carets = excerpt(text, "B")
    assert len(shown) < LONGEST + 10
    assert shown[carets.index("^")] == "B"
