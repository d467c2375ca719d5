"""Texts for users are in standard words and short sentences: documents, diagnostics, notes, help texts."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from unity_dsl.cli import unityc
from unity_dsl.syntax.codes import CODES

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "CHANGELOG.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
"""The documents in which no private phrase may occur."""

MEASURED = (*PAGES, "CONTRIBUTING.md")
"""The documents whose sentence lengths are measured."""

CODE = ("unity_dsl/search", "unity_dsl/commands", "unity_dsl/emit")
"""The folders whose string literals are texts for users."""

MEAN_WORDS, MOST_WORDS = 22, 45
MOST_BULLETS, MOST_COLUMNS = 70, 120
ABBREVIATIONS = ("e.g.", "i.e.", "al.", "vs.", "cf.", "resp.", "approx.")


def private_phrases() -> dict[str, str]:
    """Each phrase in the left column of the table of CONTRIBUTING.md, with the standard words on its right."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("| instead of | write |\n|---|---|\n")[1].split("\n\n")[0]
    rows = (line.strip("|").split("|") for line in table.splitlines())
    return {phrase.strip(): right.strip() for left, right in rows for phrase in left.split(";")}


def pattern(phrase: str) -> re.Pattern[str]:
    """Matches the whole words of a phrase in any case and across lines; `…` is one to three words."""
    words = r"\s+".join(r"(?:\S+\s+){0,2}\S+" if word == "…" else re.escape(word) for word in phrase.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


PATTERNS = {phrase: pattern(phrase) for phrase in private_phrases()}


def found(text: str) -> list[str]:
    """The private phrases of a text, each with its line and what to write."""
    told = private_phrases()
    return [
        f"`{match[0]}` in line {text.count(chr(10), 0, match.start()) + 1}: write {told[phrase]}"
        for phrase, one in PATTERNS.items()
        for match in one.finditer(text)
    ]


def without_code(text: str) -> str:
    """A document without code: blocks become empty lines, spans of code become the word `CODE`."""
    fenced = re.compile(r"^(```|~~~).*?^\1 *$", re.DOTALL | re.MULTILINE)
    kept = fenced.sub(lambda block: "\n" * block[0].count("\n"), text)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", lambda span: "CODE" + "\n" * span[0].count("\n"), kept, flags=re.DOTALL)


def blocks(text: str) -> Iterator[str]:
    """The paragraphs and items of lists of a document, without tables, headings and code; links become their texts."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", without_code(text))
    lines: list[str] = []
    for line in (*map(str.strip, text.splitlines()), ""):
        item = re.match(r"(?:[-*+]|\d+\.)\s+", line)
        if not line or line[0] in "|#" or item:
            yield " ".join(lines)
            lines = [line[item.end() :]] if item else []
        else:
            lines.append(line)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a document: each ends at a full stop, with quotes or brackets behind it, or with its block."""
    for block in blocks(text):
        words: list[str] = []
        for word in block.replace("*", "").split():
            if re.search(r"\w", word):
                words.append(word)
            if words and re.search(r"[.!?][\"')\]]*$", word) and word.lstrip("(") not in ABBREVIATIONS:
                yield " ".join(words)
                words = []
        if words:
            yield " ".join(words)


def string_literals(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines, without docstrings and without what an f-string inserts."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | docstrings:
            yield node.lineno, node.value


def help_texts(command: click.Command, context: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The `--help` output of a command and of its subcommands."""
    inner = click.Context(command, parent=context, info_name=command.name, max_content_width=100)
    yield inner.command_path, command.get_help(inner)
    for name in command.list_commands(inner) if isinstance(command, click.Group) else ():
        below = command.get_command(inner, name)
        assert below is not None
        yield from help_texts(below, inner)


def test_the_table_of_words_is_read() -> None:
    phrases = private_phrases()
    assert len(phrases) > 40 and all(phrases) and all(phrases.values())
    assert phrases["run in turns"] == "interleaved execution"


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("repeats that Run\nin turns", ["Run\nin turns"]),
        ("while cotangents travel", ["while cotangents travel"]),
        ("while what is sent there travels", []),
        ("a return of the turns", []),
        ("11 groups", []),
        ("1 groups of", ["1 groups"]),
    ],
)
def test_phrases_are_found_as_whole_words(text: str, phrases: list[str]) -> None:
    hits = [match[0] for one in PATTERNS.values() for match in one.finditer(text)]
    assert sorted(hit for hit in hits if hit != "cotangents") == sorted(phrases)


def test_sentences_of_a_text_with_code_tables_links_and_abbreviations() -> None:
    text = """# A heading. Of two

See [the page. Of two](a.md) first, e.g. here. `unityc a. B.` runs (so
it is told.) "Why?" Done

```text
No sentence. At all.
```
| a table. | not. |
1. One item
- another, by Unger et al. and **all**.
"""
    assert list(sentences(text)) == [
        "See the page.",
        "Of two first, e.g. here.",
        "CODE runs (so it is told.)",
        '"Why?"',
        "Done",
        "One item",
        "another, by Unger et al. and all.",
    ]


@pytest.mark.parametrize("page", PAGES)
def test_documents_have_no_private_phrase(page: str) -> None:
    assert not found(without_code((ROOT / page).read_text()))


def test_texts_of_diagnostics_notes_and_commands_have_no_private_phrase() -> None:
    told = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in string_literals(path)
        for fault in found(text)
    ]
    told += [f"{code}: {fault}" for code, entry in CODES.items() for fault in found(f"{entry.title} {entry.text}")]
    assert not told, "\n".join(told)


def test_templates_of_programs_have_no_private_phrase() -> None:
    texts = {path.name: path.read_text() for path in sorted((ROOT / "codegen").rglob("*.j2"))}
    assert len(texts) > 20
    assert not {name: faults for name, text in texts.items() if (faults := found(text))}


def test_help_texts_have_no_private_phrase() -> None:
    texts = dict(help_texts(unityc))
    assert len(texts) > 15
    assert not {name: faults for name, text in texts.items() if (faults := found(text))}


@pytest.mark.parametrize("page", MEASURED)
def test_sentences_are_short(page: str) -> None:
    lengths = {sentence: len(sentence.split()) for sentence in sentences((ROOT / page).read_text())}
    mean = statistics.mean(lengths.values())
    print(f"{page}: {len(lengths)} sentences, {mean:.1f} words on average, {max(lengths.values())} at most")
    assert mean <= MEAN_WORDS
    assert not [sentence for sentence, length in lengths.items() if length > MOST_WORDS]


def test_the_changelog_is_one_line_a_bullet() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    bullets = [line for line in lines if line.startswith("- ")]
    assert len(bullets) <= MOST_BULLETS and max(map(len, bullets)) <= MOST_COLUMNS
    assert all(line.endswith(".") for line in bullets) and not [line for line in lines if line.startswith(" ")]
    assert all(len(list(sentences(line))) == 1 for line in bullets)
