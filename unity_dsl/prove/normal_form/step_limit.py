"""The step budget of a proof. Steps are counted instead of time, so that answers are the same on every run.

A step takes some tens of microseconds: a term substituted, two terms multiplied, a pair of reads unified, a thousand
resource units of z3, some thousand elements computed in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


class Unsupported(Exception):
    """The prover has no method for a construct, which the first argument names."""


class OutOfSteps(Unsupported):
    """The step budget of a question is exhausted."""


@dataclass
class _Meter:
    allowed: int
    left: int


_METER: ContextVar[_Meter | None] = ContextVar("steps", default=None)


@contextmanager
def limited(steps: int) -> Iterator[None]:
    """Limits the steps inside to `steps` and to the rest of the enclosing limit. `spend` raises OutOfSteps."""
    around = _METER.get()
    allowed = steps if around is None else min(steps, max(around.left, 0))
    meter = _Meter(allowed, allowed)
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)
        if around is not None:
            around.left -= allowed - meter.left


def spend(steps: int = 1) -> None:
    """Counts steps. Raises OutOfSteps once the budget is exhausted, and on each later call."""
    meter = _METER.get()
    if meter is not None:
        meter.left -= steps
        if meter.left < 0:
            raise OutOfSteps(f"the {meter.allowed:,} steps that it may take")


def steps_left() -> int | None:
    """The steps left, None without a limit."""
    meter = _METER.get()
    return None if meter is None else max(meter.left, 0)
