"""Schedules of random models, plans and passes compute on simulated ranks what their models compute."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.sampling import SAMPLE
from unity_dsl.index.library import Library
from unity_dsl.schedule.ir import Convert

from ..fuzz.cases import libraries
from .random_schedules import TOLERANCE, drawn, error_of

CASES = 60
"""Cases a day. `python -m tests.schedule.random_schedules` runs a thousand."""


@pytest.fixture(scope="module")
def known() -> tuple[Library, Library]:
    return libraries()


def test_schedules_compute_what_their_models_do(known: tuple[Library, Library]) -> None:
    print(f"seed {SAMPLE}")
    found = Counter[str]()
    for number in range(CASES):
        case = drawn(SAMPLE, number, known)
        found += case.mechanisms
        assert error_of(case, number) <= TOLERANCE, f"seed {SAMPLE}, case {number}\n{case.text}\n{case.plan.passes}"
    kinds = {
        "Compute",
        "Convert",
        "Begin",
        "Arrive",
        "StartGathers",
        "AwaitGathers",
        "Iterate",
        "Interleave",
        "Updates",
    }
    assert kinds <= found.keys()


def test_a_wrong_schedule_computes_something_else(known: tuple[Library, Library]) -> None:
    """The interpreter is an oracle: it detects a conversion that is left out."""
    seen = changed = 0
    for number in range(0, 40, 2):
        case = drawn(7, number, known)
        given = case.schedule.instructions
        places = (n for n, one in enumerate(given) if isinstance(one, Convert) and len(one.conversion.forward) == 1)
        if (place := next(places, None)) is None:
            continue
        one, changed = given[place], changed + 1
        assert isinstance(one, Convert)
        other = replace(one, conversion=replace(one.conversion, forward=()))
        schedule = replace(case.schedule, instructions=(*given[:place], other, *given[place + 1 :]))
        try:
            seen += not error_of(replace(case, schedule=schedule), number) <= TOLERANCE
        except (AssertionError, ValueError, IndexError):
            seen += 1
    assert changed >= 10 and seen >= 0.8 * changed, "some conversions of copies change nothing"
