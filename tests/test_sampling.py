"""The samples of the day: of the wanted size, the same all day, and in the end everything."""

from __future__ import annotations

from math import ceil

import pytest

from . import sampling
from .sampling import of_the_day


@pytest.mark.parametrize(("size", "count"), [(10, 1), (10, 3), (12, 4), (7, 6)])
def test_after_some_days_everything_was_looked_at(size: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "EVERYTHING", False)
    for first in (0, 5, 739_000):
        found = [of_the_day(range(size), count, day) for day in range(first, first + ceil(size / count))]
        assert found[0] == of_the_day(range(size), count, first)
        assert all(len(set(cases)) == count for cases in found)
        assert set().union(*found) == set(range(size))


def test_all_are_wanted_or_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "EVERYTHING", False)
    assert of_the_day("abc", 3) == of_the_day("abc", 5) == ["a", "b", "c"]
    monkeypatch.setattr(sampling, "EVERYTHING", True)
    assert of_the_day("abc", 1) == ["a", "b", "c"]
