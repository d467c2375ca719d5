"""Which of many cases a run of the tests looks at: others every day, and after some days each of them was looked at.

`UNITY_SAMPLE` sets the number of the day, which a failure prints. With `UNITY_EVERYTHING=1` all cases are looked at:
`make test-everything`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from random import Random
from typing import TypeVar
from zlib import crc32

Case = TypeVar("Case")

SAMPLE = int(os.environ.get("UNITY_SAMPLE", date.today().toordinal()))
EVERYTHING = os.environ.get("UNITY_EVERYTHING", "0") != "0"


SHORT = "UNITY_SHORT"
"""The variable that says whether the whole suite runs, of which a part of all cases is enough every day."""
LONG = 6.0
"""Processor seconds of a test that a run of the whole suite leaves to every second day."""


def share(cases: Sequence[Case], seconds: float, day: int = SAMPLE) -> list[Case]:
    """What a run of the whole suite takes of the cases of a test: half of up to five, a third of more. A test that has
    one, and takes long, is run every second day.
    """
    if len(cases) == 1 and seconds >= LONG and not EVERYTHING:
        return list(cases) if (day + crc32(str(cases[0]).encode())) % 2 else []
    return of_the_day(cases, -(-len(cases) // (2 if len(cases) <= 5 else 3)), day)


def of_the_day(cases: Sequence[Case], count: int, day: int = SAMPLE) -> list[Case]:
    """`count` of the cases, those after yesterday's in a shuffled order that does not change; or all of them."""
    if EVERYTHING or count >= len(cases):
        return list(cases)
    shuffled = Random(0).sample(cases, len(cases))
    return [shuffled[(day * count + number) % len(cases)] for number in range(count)]
