"""Every file of cases/parse_error is refused, with the message in the file of its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.render import render
from unity_dsl.syntax.span import Source

CASES = Path(__file__).parents[1] / "cases" / "parse_error"
PARSERS: dict[str, Callable[[Source], object]] = {".uop": parse_ops, ".udl": parse_model, ".rules": parse_rules}
FILES = sorted(path for path in CASES.iterdir() if path.suffix in PARSERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_fault_is_told(path: Path, golden: Callable[[Path, str], None]) -> None:
    source = replace(read_source(path), name=path.name)
    with pytest.raises(InputError) as caught:
        PARSERS[path.suffix](source)
    golden(path.with_suffix(path.suffix + ".expected"), render(caught.value.diagnostic) + "\n")


def test_every_text_belongs_to_a_case() -> None:
    expected = {path.with_suffix("") for path in CASES.glob("*.expected")}
    assert expected == set(FILES)
    assert len(FILES) > 100
