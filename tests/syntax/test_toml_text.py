"""Texts that are not TOML are reported at the place of their fault."""

from __future__ import annotations

import pytest

from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source
from unity_dsl.syntax.toml_text import toml_entries


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a = 1\n[b\nc = 2\n", 2, 3, "expected ']'"),
        ("a = 1\nb = = 2\n", 2, 5, "invalid value"),
        ("a = 1\n  a = 2\n", 2, 8, "cannot overwrite a value"),
        ('a = 1\nb = """x\n\n', 2, 9, "unterminated string"),
        (f"a = 1\nb = {'7' * 5000}\n", 2, 5, "thousands of digits"),
        (f"a = {'[' * 5000}", 1, 1, "nested too deeply"),
    ],
)
def test_a_fault_has_its_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        toml_entries(Source("x.toml", text), "E304")
    told = caught.value.diagnostic
    assert told.code == "E304" and message in told.message
    assert told.span is not None and told.span.source.position(told.span.start) == (line, column)


def test_entries_are_those_of_the_text() -> None:
    assert toml_entries(Source("x.toml", "a = 1\n[b]\nc = [2, 3]\n"), "E304") == {"a": 1, "b": {"c": [2, 3]}}
