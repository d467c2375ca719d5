"""A value is computed once a run, for all processes. Outside of a run, no file keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import once as module
from tests.once import RUN, once


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The values made so far, in a run of its own."""
    monkeypatch.setattr(module, "_HELD", {})
    monkeypatch.setenv(RUN, str(tmp_path))
    return []


def ask(made: list[int], key: str = "key") -> int:
    return once(key, lambda: (made.append(len(made)), len(made))[1])


def test_another_process_reads_what_was_made(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(made) == ask(made) == 1 and ask(made, "another") == 2
    monkeypatch.setattr(module, "_HELD", {})
    assert ask(made) == 1 and made == [0, 1]


def test_outside_of_a_run_nothing_is_written(made: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(RUN)
    assert ask(made) == ask(made) == 1
    monkeypatch.setattr(module, "_HELD", {})
    assert ask(made) == 2 and not list(tmp_path.iterdir())
