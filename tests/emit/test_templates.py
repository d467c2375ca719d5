"""Templates from a compiled cache, against templates compiled from their texts."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from unity_dsl.emit.templates import KeptTemplates


def rendered(texts: Path) -> tuple[str, bool]:
    """Renders a template of a folder. Says whether the template was compiled for it."""
    compiled = []

    class Environment(jinja2.Environment):
        def _generate(self, *arguments: object, **named: object) -> str:
            compiled.append(True)
            return super()._generate(*arguments, **named)  # type: ignore[arg-type]

    environment = Environment(loader=jinja2.FileSystemLoader(texts), bytecode_cache=KeptTemplates(texts))
    return environment.get_template("a.j2").render(x=3), bool(compiled)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "a.j2").write_text("{{ x }} is x")
    return tmp_path


def test_a_template_is_compiled_once(texts: Path) -> None:
    assert rendered(texts) == ("3 is x", True)
    assert rendered(texts) == ("3 is x", False)


def test_a_template_that_was_changed_is_compiled_again(texts: Path) -> None:
    rendered(texts)
    (texts / "a.j2").write_text("x is {{ x }}")
    assert rendered(texts) == ("x is 3", True)
    assert rendered(texts) == ("x is 3", False)


def test_what_is_kept_need_not_be_whole(texts: Path) -> None:
    rendered(texts)
    (kept,) = (texts / "__pycache__").iterdir()
    whole = kept.read_bytes()
    for size in (*range(80), len(whole) // 2):
        kept.write_bytes(whole[:size])
        assert rendered(texts) == ("3 is x", True)
        assert kept.read_bytes() == whole


def test_nothing_is_kept_where_it_cannot_be_or_is_not_wanted(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (texts / "__pycache__").write_text("no folder")
    assert rendered(texts) == ("3 is x", True)
    (texts / "__pycache__").unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered(texts) == ("3 is x", True)
    assert not (texts / "__pycache__").exists()
