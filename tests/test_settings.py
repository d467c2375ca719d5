"""Settings that hold for all tests."""

from __future__ import annotations

import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@given(st.integers())
@settings(max_examples=2)
def test_a_slow_example_is_no_failure(_: int) -> None:
    """Half a second is more than hypothesis allows an example by default."""
    time.sleep(0.5)


def test_neither_are_slow_draws() -> None:
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    assert settings.default.deadline is None
