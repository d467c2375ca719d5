"""Trials are recorded by content: for shipped declarations in a file, for the user's own in a cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.index.declarations import fact_trials, native_trials, trial_record
from unity_dsl.index.declarations.function_trials import check_function_lines
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.declarations.native_trials import check_native_lines
from unity_dsl.index.declarations.sample_trials import check_samples
from unity_dsl.index.declarations.trial_record import (
    CACHE,
    NAME,
    content_hash,
    is_tried,
    makes_claims,
    read_record,
    record_of,
    shipped_record,
    texts_tried,
)
from unity_dsl.resources import folder
from unity_dsl.syntax.ast import FunctionDecl, OperatorDecl
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

from ..declare import FUNCTIONS

TEXT = """fn twice(x) = 2 * x
  derivative x: 2

op doubled(x: [b..]) -> y: [b..]
  y[b..] = twice(x[b..])
  torch: torch.mul(x, 2)
"""


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Collects the names of operators whose native calls are tried, with a cache of their own."""
    names: list[str] = []
    real = native_trials.check_native_lines

    def check(operator: OperatorDecl, *rest: object) -> None:
        names.append(operator.name)
        real(operator, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(native_trials, "check_native_lines", check)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return names


def read(text: str, name: str = "mine.uop") -> None:
    library_of([FUNCTIONS, Source(name, text)])


def test_the_shipped_record_is_of_the_shipped_texts(
    golden: Callable[[Path, str], None], pytestconfig: pytest.Config
) -> None:
    """With --update-golden everything is tried again, and the record is rewritten."""
    sources = library_sources()
    library = library_of(sources)
    operators = [operator for operator in library.operators.values() if makes_claims(operator)]
    if pytestconfig.getoption("--update-golden"):
        for function in library.functions.values():
            check_function_lines(function, library.functions)
        for operator in operators:
            check_samples(operator, library)
            check_native_lines(operator, library)
    declarations: list[FunctionDecl | OperatorDecl] = [*library.functions.values(), *operators]
    golden(folder("rules") / NAME, record_of(sources, declarations, library.functions).to_text())


def test_what_ships_is_known() -> None:
    sources = library_sources()
    assert texts_tried(sources) and not texts_tried([*sources, Source("other.uop", "")])
    assert not texts_tried([Source(sources[0].name, sources[0].text + "\n")])
    library = library_of(sources)
    assert is_tried(library.operators["linear"], library.functions)
    assert is_tried(library.functions["relu"], library.functions)


def test_the_user_s_own_is_tried_once_for_every_content(tried: list[str]) -> None:
    read(TEXT)
    read(TEXT + "\n# a remark\n", "elsewhere.uop")
    assert tried == ["doubled"]
    read(TEXT.replace("torch.mul(x, 2)", "torch.add(x, x)"))
    read(TEXT.replace("= 2 * x", "= x + x"))
    assert tried == ["doubled"] * 3


def test_what_fails_is_not_remembered(tried: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(InputError, match="E114"):
            read(TEXT.replace("torch.mul(x, 2)", "torch.mul(x, 3)") + "\n" * (len(tried) + 1))
    assert tried == ["doubled"] * 2


def test_a_cache_that_cannot_be_written_is_no_error(tried: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    read(TEXT + "\n")
    read(TEXT + "\n\n")
    assert tried == ["doubled"] * 2


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The XDG base directory specification requires this."""
    monkeypatch.setenv(CACHE, "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    read(TEXT + "\n\n\n")
    assert [path.name for path in (tmp_path / ".cache" / "unity-dsl").iterdir()] == ["declarations"]
    assert not os.path.exists("relative")


def test_a_content_includes_the_functions_that_it_reaches() -> None:
    first, second = (
        library_of([FUNCTIONS, Source("mine.uop", text)]) for text in (TEXT, TEXT.replace("= 2 * x", "= x * 2"))
    )
    hashes = {content_hash(library.operators["doubled"], library.functions) for library in (first, second)}
    assert len(hashes) == 2


def test_a_fact_is_no_part_of_the_content(tried: list[str]) -> None:
    read(TEXT)
    read(TEXT.replace("derivative x: 2\n", "derivative x: 2\n  fact twice(0) == 0\n"))
    assert tried == ["doubled"]


def test_facts_are_tried_once_for_every_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A false fact is refused each time. Another body of the function is different content."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    names: list[str] = []
    real = fact_trials.check_facts

    def check(function: FunctionDecl, *rest: object) -> None:
        names.append(function.name)
        real(function, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fact_trials, "check_facts", check)
    stated = TEXT.replace("derivative x: 2\n", "derivative x: 2\n  fact twice(a) == a + a\n")
    read(stated)
    read(stated + "\n# a remark\n")
    assert names == ["twice"]
    read(stated.replace("= 2 * x", "= x + x"))
    assert names == ["twice"] * 2
    for end in ("", "\n"):
        with pytest.raises(InputError, match="E113"):
            read(stated.replace("== a + a", "== a") + end)
    assert names == ["twice"] * 4


def test_a_record_of_other_trials_or_none_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_record(shipped_record().to_text()).declarations
    for text in ("", "{}", "[]", '{"trials": 0, "texts": {}, "declarations": {}}'):
        assert not read_record(text).declarations
    monkeypatch.setattr(trial_record, "TRIALS", trial_record.TRIALS + 1)
    assert not read_record(shipped_record().to_text()).declarations
