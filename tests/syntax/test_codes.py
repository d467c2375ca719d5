"""Every code that is raised is explained, and every explained code is raised."""

from __future__ import annotations

import re
from pathlib import Path

import unity_dsl
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.mistakes import MISTAKES

PACKAGE = Path(unity_dsl.__file__).parent


def raised() -> set[str]:
    texts = (path.read_text() for path in PACKAGE.rglob("*.py"))
    of_mistakes = {mistake.code for mistakes in MISTAKES.values() for mistake in mistakes}
    return of_mistakes | {code for text in texts for code in re.findall(r"\"([EW]\d{3})\"", text)}


def test_codes_are_raised_and_explained() -> None:
    assert raised() == set(CODES)


def test_explanations_are_written() -> None:
    assert list(CODES) == sorted(CODES)
    for code, entry in CODES.items():
        assert re.fullmatch(r"E[0-6]\d\d|W3\d\d", code)
        assert entry.title and not entry.title.endswith(".")
        assert len(entry.text) > 40 and entry.text.endswith(".") and "  " not in entry.text
