"""Times and ratios as text, as a reader would write them."""

from __future__ import annotations

import re
from random import Random

import pytest

from unity_dsl.written_figures import duration, percent


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        *((0.0, "0 µs"), (0.0000123, "12.3 µs"), (0.00124, "1.24 ms"), (0.17, "170 ms"), (41.9943, "42 s")),
        *((0.9996, "1 s"), (0.99949, "999 ms"), (0.00099951, "1 ms"), (999.6, "1000 s"), (1700.4, "1700 s")),
    ],
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told


@pytest.mark.parametrize(
    ("hundredths", "told"),
    [
        (0.0, "0 %"),
        (0.0038, "under 0.01 %"),
        (0.354, "0.35 %"),
        (9.96, "10 %"),
        (24.1, "24 %"),
        (99.4, "99 %"),
        (99.7, "100 %"),
        (160.3, "160 %"),
    ],
)
def test_hundredths(hundredths: float, told: str) -> None:
    assert percent(hundredths) == told


def test_no_exponents_and_no_more_than_half_a_unit_in_the_last_place() -> None:
    print("seed 5")
    rng = Random(5)
    for _ in range(300):
        value = 10 ** rng.uniform(-1.9, 4)
        for told, scale, near in (
            (duration(value), {"µs": 1e-6, "ms": 1e-3, "s": 1.0}, 0.006),
            (percent(value), {"%": 1.0}, 0.06),
        ):
            number, unit = told.split()
            assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", number), told
            assert float(number) * scale[unit] == pytest.approx(value, rel=near), told
