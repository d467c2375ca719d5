"""The step budget of a proof: work is counted, never timed, so that answers are the same on every run.

A step is some tens of microseconds: a term substituted, two terms multiplied, a pair of reads unified, a thousand steps
of z3, some thousand elements computed in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


class Unsupported(Exception):
    """The prover has no method for something. The first argument says for what."""


class OutOfSteps(Unsupported):
    """A question took more steps than it may."""


@dataclass
class _Meter:
    allowed: int
    left: int


_METER: ContextVar[_Meter | None] = ContextVar("steps", default=None)


@contextmanager
def limited(steps: int) -> Iterator[None]:
    """What is done inside may take so many steps, and no more than are left outside. Raises OutOfSteps from `spend`."""
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
    """Counts steps. Raises OutOfSteps once there are more than allowed, and from then on each time."""
    meter = _METER.get()
    if meter is not None:
        meter.left -= steps
        if meter.left < 0:
            raise OutOfSteps(f"the {meter.allowed:,} steps that it may take")


def steps_left() -> int | None:
    """How many steps are left, None where there is no limit."""
    meter = _METER.get()
    return None if meter is None else max(meter.left, 0)
