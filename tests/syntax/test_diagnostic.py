"""Words that several diagnostics and notes share."""

from __future__ import annotations

import pytest

from unity_dsl.syntax.diagnostic import first_of, suggest


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, ""), (1, "a"), (2, "a, b"), (3, "a, b, c"), (4, "a, b and 2 more"), (6, "a, b and 4 more")],
)
def test_of_many_names_the_first_are_told(count: int, expected: str) -> None:
    assert first_of("abcdef"[:count], 2) == expected


def test_a_near_name_is_suggested() -> None:
    assert suggest("linaer", ["matmul", "linear"]) == "did you mean `linear`?"
    assert suggest("xyz", ["matmul", "linear"]) == ""
