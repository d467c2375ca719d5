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

Case = TypeVar("Case")

SAMPLE = int(os.environ.get("UNITY_SAMPLE", date.today().toordinal()))
EVERYTHING = os.environ.get("UNITY_EVERYTHING", "0") != "0"


def of_the_day(cases: Sequence[Case], count: int, day: int = SAMPLE) -> list[Case]:
    """`count` of the cases, those after yesterday's in a shuffled order that does not change; or all of them."""
    if EVERYTHING or count >= len(cases):
        return list(cases)
    shuffled = Random(0).sample(cases, len(cases))
    return [shuffled[(day * count + number) % len(cases)] for number in range(count)]
