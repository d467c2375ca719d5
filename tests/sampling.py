"""Selects the cases that a test run checks: a different sample every day, and all of them within some days.

`UNITY_SAMPLE` sets the number of the day, which a failure prints. `UNITY_EVERYTHING=1` checks all cases: `make
test-everything`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import date
from random import Random
from typing import TypeVar
from zlib import crc32

Case = TypeVar("Case")

SAMPLE = int(os.environ.get("UNITY_SAMPLE", date.today().toordinal()))
EVERYTHING = os.environ.get("UNITY_EVERYTHING", "0") != "0" or "--update-golden" in sys.argv
"""Expected texts are updated all at once: those of cases that a sample leaves out would become stale."""


SHORT = "UNITY_SHORT"
"""The variable that says whether the whole suite runs. A part of all cases is then enough every day."""
LONG = 6.0
"""Processor seconds from which a test with one case runs only every second day of the whole suite."""


def share(cases: Sequence[Case], seconds: float, day: int = SAMPLE) -> list[Case]:
    """The cases of a test that a run of the whole suite checks: half of up to five, a third of more. A test with one
    case of at least `LONG` processor seconds runs every second day.
    """
    if len(cases) == 1 and seconds >= LONG and not EVERYTHING:
        return list(cases) if (day + crc32(str(cases[0]).encode())) % 2 else []
    return of_the_day(cases, -(-len(cases) // (2 if len(cases) <= 5 else 3)), day)


def of_the_day(cases: Sequence[Case], count: int, day: int = SAMPLE) -> list[Case]:
    """`count` of the cases, or all of them. Each day's cases follow the previous day's in a fixed shuffled order."""
    if EVERYTHING or count >= len(cases):
        return list(cases)
    shuffled = Random(0).sample(cases, len(cases))
    return [shuffled[(day * count + number) % len(cases)] for number in range(count)]
