"""The samples of the day: of the requested size, constant during a day, and complete in the end."""

from __future__ import annotations

from math import ceil
from unittest.mock import Mock

import pytest

from . import conftest, sampling
from .sampling import of_the_day, share


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


def test_of_the_whole_suite_a_part_is_taken_every_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short tests run some of their cases each day, and every case within three days. Long single cases run every other
    day.
    """
    monkeypatch.setattr(sampling, "EVERYTHING", False)
    for count, wanted in ((1, 1), (2, 1), (5, 3), (6, 2), (20, 7)):
        names = [f"test[{number}]" for number in range(count)]
        found = [share(names, 0.0, day) for day in range(3)]
        assert {*map(len, found)} == {wanted} and set().union(*found) == {*names}
    for name in "abcd":
        days = [share([name], 6.0, day) for day in range(4)]
        assert sorted(days) == [[], [], [name], [name]] and days[0] != days[1]
    monkeypatch.setattr(sampling, "EVERYTHING", True)
    assert share(["a"], 99.0) == ["a"] and share(["a", "b"], 0.0) == ["a", "b"]


def test_cases_that_are_marked_are_sampled_test_by_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "EVERYTHING", False)
    marks = {"a.py::few": pytest.mark.a_day(2).mark, "a.py::all": pytest.mark.a_day(5).mark, "a.py::plain": None}
    items = [
        Mock(nodeid=f"{name}[{number}]", **{"get_closest_marker.return_value": mark})
        for name, mark in marks.items()
        for number in range(4)
    ]
    config, given = Mock(), list(items)
    monkeypatch.delenv(sampling.SHORT, raising=False)
    conftest.pytest_collection_modifyitems(items, config)
    names = [item.nodeid.partition("[")[0] for item in items]
    assert {name: names.count(name) for name in marks} == {"a.py::few": 2, "a.py::all": 4, "a.py::plain": 4}
    (told,) = config.hook.pytest_deselected.call_args_list
    assert {*told.kwargs["items"]} == {*given} - {*items} and len(told.kwargs["items"]) == 2
