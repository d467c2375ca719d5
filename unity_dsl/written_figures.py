"""Formats times, ratios and amounts for readers, never with an exponent."""

from __future__ import annotations

from collections.abc import Mapping

_TIMES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
LEAST = 0.01
"""In hundredths: smaller values are only reported as below this."""


def duration(seconds: float) -> str:
    """Three significant digits in s, ms or µs; whole seconds of 1000 or more."""
    return in_units(seconds, _TIMES)


def in_units(amount: float, units: Mapping[str, float]) -> str:
    """Three significant digits in the first unit in which the amount is at least one, or else in the last; whole
    numbers of 1000 or more. Units go from the largest to the smallest.
    """
    rounded = float(f"{amount:.3g}")
    unit = next((unit for unit, size in units.items() if rounded >= size), list(units)[-1])
    count = amount / units[unit]
    return f"{count:.0f} {unit}" if count >= 999.5 else f"{count:.3g} {unit}"


def percent(hundredths: float) -> str:
    """Two significant digits of a number of hundredths; whole numbers from 100 on: `0.35 %`, `10 %`, `160 %`."""
    if 0 < hundredths < LEAST:
        return f"under {LEAST} %"
    return f"{hundredths:.0f} %" if hundredths >= 99.5 else f"{hundredths:.2g} %"
