"""Medians of repetitions, with a simulated clock."""

from __future__ import annotations

from unity_dsl.profiling.timing import LEAST, MOST_ROUNDS, median_seconds


def test_the_median_of_rounds_in_which_calls_take_turns() -> None:
    """The first call takes twice as long as the second; every seventh time of either is an outlier."""
    asked: list[str] = []

    def clock(call: object, times: int) -> float:
        name = "slow" if call is slow else "fast"
        asked.append(name)
        seconds = (2e-3 if call is slow else 1e-3) * times
        return seconds * (100 if len(asked) % 7 == 0 else 1)

    def slow() -> None: ...
    def fast() -> None: ...

    assert median_seconds([slow, fast], clock, 60.0) == [2e-3, 1e-3]
    rounds = asked[-2 * MOST_ROUNDS :]
    assert rounds == ["slow", "fast"] * MOST_ROUNDS


def test_short_calls_are_repeated_for_as_long_as_a_clock_can_tell() -> None:
    counts: list[int] = []

    def clock(call: object, times: int) -> float:
        counts.append(times)
        return 1e-6 * times

    (found,) = median_seconds([lambda: None], clock, 0.0)
    assert abs(found - 1e-6) < 1e-12
    assert counts[-1] * 1e-6 >= LEAST


def test_one_round_at_least() -> None:
    assert median_seconds([lambda: None], lambda call, times: 1.0 * times, 0.0) == [1.0]
