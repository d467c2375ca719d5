"""Times and ratios as readers expect them written: never with an exponent."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Three significant digits in s, ms or µs; whole seconds of 1000 or more."""
    if seconds >= 1000:
        return f"{seconds:.0f} s"
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def percent(hundredths: float) -> str:
    """Two significant digits of a number of hundredths; whole ones of 100 or more: `0.35 %`, `10 %`, `160 %`."""
    return f"{hundredths:.0f} %" if hundredths >= 99.5 else f"{hundredths:.2g} %"
