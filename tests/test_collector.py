"""The garbage collector is off inside, and restored afterwards, also after an exception."""

import gc
from collections.abc import Iterator

import pytest

from unity_dsl.collector import collector_paused


@pytest.fixture(params=[True, False], ids=["on", "off"])
def enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the garbage collector is on before."""
    was = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was else gc.disable)()


def test_collector_is_paused_within_and_as_it_was_afterwards(enabled: bool) -> None:
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled() == enabled


def test_collector_is_as_it_was_where_something_is_raised(enabled: bool) -> None:
    with pytest.raises(ValueError, match="within"), collector_paused():
        raise ValueError("within")
    assert gc.isenabled() == enabled


def test_functions_are_paused_at_each_call(enabled: bool) -> None:
    paused = collector_paused()(gc.isenabled)
    assert [paused(), paused()] == [False, False]
    assert gc.isenabled() == enabled
