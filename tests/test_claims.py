"""Every claim of the documents about behaviour has a test or a benchmark row that shows it: `tests/claims/PAGE.toml`.

A sentence with one of the words below makes a claim about every case. A table quotes the sentence and names the tests
(`tests/…/test_x.py::test_y`) and results (`bench/results/x.json`) that show it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from .test_words import sentences

ROOT = Path(__file__).parent.parent
TABLES = Path(__file__).parent / "claims"
PAGES = sorted(path.stem for path in TABLES.glob("*.toml"))
CLAIMING = re.compile(
    r"\b(never|always|deterministic|same bytes|exactly|whatever|refuse[sd]?|no other|at most|at least|equals|cannot)\b",
    re.IGNORECASE,
)


def table(page: str) -> dict[str, list[str]]:
    """The tests and results, keyed by quotation."""
    return tomllib.loads((TABLES / f"{page}.toml").read_text())


def claims(page: str) -> list[str]:
    """The sentences of a page that make a claim about every case, on one line each."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return [" ".join(sentence.split()) for sentence in sentences(text) if CLAIMING.search(sentence)]


@pytest.mark.parametrize("page", PAGES)
def test_every_claim_is_shown(page: str) -> None:
    quotations = table(page)
    missing = [claim for claim in claims(page) if not any(quotation in claim for quotation in quotations)]
    assert not missing, f"tests/claims/{page}.toml names no test of these"


@pytest.mark.parametrize("page", PAGES)
def test_every_entry_quotes_a_claim(page: str) -> None:
    found = claims(page)
    stale = [quotation for quotation in table(page) if not any(quotation in claim for claim in found)]
    assert not stale, f"docs/{page}.md has no such claims"


@pytest.mark.parametrize("page", PAGES)
def test_what_shows_a_claim_exists(page: str) -> None:
    for quotation, shown in table(page).items():
        assert shown, f"nothing shows: {quotation}"
        for name in shown:
            path, _, test = name.partition("::")
            assert (ROOT / path).is_file(), f"{quotation}: there is no {path}"
            if path.startswith("tests/"):
                defined = re.search(rf"^def {re.escape(test)}\(", (ROOT / path).read_text(), re.MULTILINE)
                assert test and defined, f"{quotation}: {path} has no {test}"
            else:
                assert path.startswith("bench/results/"), f"{quotation}: {name} is neither a test nor a result"


def test_a_claim_is_found_by_its_words() -> None:
    assert CLAIMING.search("A search Never returns a worse plan.") and not CLAIMING.search("It is shown nevertheless.")
