"""The pages about operators in docs/ match the declarations, and none is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.index.declarations.loading import library_of, load_library
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Answer, NotProved
from unity_dsl.report.operator_pages import INDEX, declaration_lines, operator_pages
from unity_dsl.rules.sharding_table import statuses
from unity_dsl.rules.sharding_theorems import Claim, ShardingTheorems
from unity_dsl.syntax.span import Source

DOCS = Path(__file__).parent.parent.parent / "docs" / "operators"


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


@pytest.fixture(scope="module")
def pages(library: Library) -> dict[str, str]:
    return operator_pages(library, ShardingTheorems(library))


def test_the_pages_in_docs_are_up_to_date(
    pages: dict[str, str], golden: Callable[[Path, str], None], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden"):
        for path in DOCS.glob("*.md"):
            path.unlink()
    for name, text in pages.items():
        golden(DOCS / name, text)
    assert {path.name for path in DOCS.iterdir()} == set(pages)


def test_every_declaration_is_on_a_page(pages: dict[str, str], library: Library) -> None:
    titles = {title for text in pages.values() for title in re.findall(r"^## (.+)$", text, re.MULTILINE)}
    assert titles == {*library.operators, *library.parallels, *(f"fn {name}" for name in library.functions)}


def test_every_operator_says_what_it_is(library: Library) -> None:
    silent = [name for name, found in {**library.operators, **library.parallels}.items() if not found.doc.strip()]
    assert not silent, "a line that begins with ## above the declaration says what it is"


def test_the_table_has_a_row_for_every_operator(pages: dict[str, str], library: Library) -> None:
    rows = dict(re.findall(r"^\| \[(\w+)\]\([\w.#]+\) \|.*\| +(\d+) \|", pages[INDEX], re.MULTILINE))
    expected = {name: str(declaration_lines(operator.span)) for name, operator in library.operators.items()}
    assert rows == expected
    assert f"{len(rows)} operators in {sum(map(int, rows.values()))} lines of declaration" in pages[INDEX]


def test_lines_are_those_of_the_file(library: Library) -> None:
    assert declaration_lines(library.operators["relu"].span) == 3
    assert declaration_lines(library.operators["softmax"].span) == 6


def test_links_lead_somewhere(pages: dict[str, str]) -> None:
    for text in pages.values():
        for page, anchor in re.findall(r"\]\(([\w.]+)(?:#([\w-]+))?\)", text):
            titles = re.findall(r"^## (.+)$", pages[page], re.MULTILINE)
            assert not anchor or anchor in {title.replace(" ", "-").lower() for title in titles}


def test_nothing_is_left_unproved(library: Library) -> None:
    for name, operator in library.operators.items():
        found = statuses(operator, ShardingTheorems(library))
        assert found and set(found.values()) <= {"proved", "declared", "blocked"}, name


def test_what_is_not_proved_is_said() -> None:
    """The pages of an axis classified as divisible, with a prover that proves nothing."""

    class Nothing(ShardingTheorems):
        def holds(self, claim: Claim) -> bool:
            return False

        def answer(self, claim: Claim) -> Answer:
            return NotProved("same_value", "no proof", 0.0)

    library = library_of([Source("one.uop", "## Twice x.\nop f(x: [a]) -> y: [a]\n  y[a] = 2 * x[a]\n")])
    pages = operator_pages(library, Nothing(library))
    assert "a  mapped   not proved:" in pages["one.md"] and "in x: not proved" in pages["one.md"]
    assert "| 2 not proved |" in pages[INDEX]


def test_the_command_writes_a_user_s_operators_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.uop").write_text("## Three times x.\nop triple(x: [b..]) -> y: [b..]\n  y[b..] = 3 * x[b..]\n")
    assert run(["docs", "-o", str(tmp_path / "pages"), "--ops", str(tmp_path / "mine.uop")]) == 0
    assert "mine.md" in capsys.readouterr().out
    text = (tmp_path / "pages" / "mine.md").read_text()
    assert "Three times x." in text and "b..  mapped   proved:" in text and "in x: proved" in text
    assert "[triple](mine.md#triple)" in (tmp_path / "pages" / INDEX).read_text()
    (tmp_path / "file").write_text("")
    assert run(["docs", "-o", str(tmp_path / "file")]) == 2
    assert "error[E030]" in capsys.readouterr().err


def test_explain_says_what_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "linear"]) == 0
    assert "i    summed   proved:" in capsys.readouterr().out
    assert run(["explain", "slice"]) == 0
    assert "d    blocked  " in capsys.readouterr().out
