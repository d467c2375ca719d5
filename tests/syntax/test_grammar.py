"""The grammars have no conflicts, their tables are fresh, and a cold start is short."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lark.lexer import PatternStr

from tests.syntax.samples import MODEL, OPS, RULES
from unity_dsl.resources import folder
from unity_dsl.syntax import tables
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.grammar import grammar, grammar_text, parse_tree
from unity_dsl.syntax.span import Source
from unity_dsl.syntax.token_lines import lay_out

LANGUAGES = ("uop", "udl", "rules")
SAMPLES = {"uop": OPS, "udl": MODEL, "rules": RULES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_conflict_is_resolved_in_silence(language: str) -> None:
    tables.build(grammar_text(language), strict=True)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_shipped_table_is_what_the_grammar_gives(language: str, golden: Callable[[Path, str], None]) -> None:
    golden(tables.TABLES / f"{language}.json", tables.dump(grammar_text(language)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_table_and_grammar_parse_alike(language: str) -> None:
    text = grammar_text(language)
    loaded = tables.load(text, tables.TABLES / f"{language}.json")
    assert loaded is not None
    layout = lay_out(Source("sample", SAMPLES[language]), loaded)
    built = tables.build(text)
    assert lay_out(layout.source, built).tokens == layout.tokens
    trees = []
    for parser in (loaded, built):
        state = parser.parse_interactive("")
        for token in layout.tokens:
            state.feed_token(token)
        trees.append(state.feed_eof(layout.tokens[-1]))
    assert trees[0] == trees[1] == parse_tree(layout, language)


def test_a_stale_table_is_never_used(tmp_path: Path) -> None:
    text = grammar_text("udl")
    table = tmp_path / "udl.json"
    assert tables.load(text, table) is None
    table.write_text(tables.dump(text))
    assert tables.load(text, table) is not None
    assert tables.load(text.replace('"loss"', '"cost"'), table) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_keyword_is_told_by_its_explanation(language: str) -> None:
    patterns = (terminal.pattern for terminal in grammar(language).terminals)
    keywords = {p.value for p in patterns if isinstance(p, PatternStr) and p.value.isalpha()}
    told = re.search(rf"In `\.{language}`: ([\w, ]+)\.", CODES["E012"].text)
    assert told is not None
    assert set(told[1].split(", ")) == keywords


COLD_START = """
import sys
from pathlib import Path
from unity_dsl.syntax import tables
tables.build = None
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source
for path in Path(sys.argv[1]).glob("*.uop"):
    parse_ops(read_source(path))
parse_model(Source("m.udl", "model m[d = 4]\\n  loss x\\n"))
print(*sys.modules)
"""


def test_a_cold_start_makes_no_table() -> None:
    """Shipped tables are read, not computed. The module that diagnoses mistakes is not even loaded."""
    command = [sys.executable, "-c", COLD_START, str(folder("ops"))]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "unity_dsl.syntax.parse_ops" in loaded
    assert "unity_dsl.syntax.diagnose" not in loaded
