"""Every file of cases/rule_error is refused, in the words of the file beside it; well formed rules are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.prove.cases import library
from unity_dsl.rules.check import load_rules
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.render import render

CASES = Path(__file__).parents[1] / "cases" / "rule_error"
FILES = sorted(CASES.glob("*.rules"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_fault_is_told(path: Path, golden: Callable[[Path, str], None]) -> None:
    source = replace(read_source(path), name=path.name)
    with pytest.raises(InputError) as caught:
        load_rules(source, library())
    assert caught.value.diagnostic.span is not None
    text = re.sub(r"\S*/ops/(\w+\.uop):\d+:\d+", r"ops/\1", render(caught.value.diagnostic))
    golden(path.with_suffix(".txt"), text + "\n")
