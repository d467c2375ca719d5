"""Reports of a running search: what it searches now, and the best plan so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from logging import getLogger
from math import isfinite

from ..written_figures import duration, percent

LOG = getLogger(__name__)

_best: ContextVar[float | None] = ContextVar("_best", default=None)
"""Seconds of the best simulated step so far."""


@contextmanager
def telling_progress() -> Iterator[None]:
    """A search in this context starts without a best plan."""
    token = _best.set(None)
    try:
        yield
    finally:
        _best.reset(token)


def tell_incumbent(seconds: float, told: str = "") -> None:
    """Reports the best plan so far, by its simulated step."""
    _best.set(seconds)
    LOG.info("best so far %s a step%s", duration(seconds), f", {told}" if told else "")


def tell_cost(seconds: float, bound: float) -> None:
    """Reports the least additive cost so far. No plan of the meshes that were bounded costs less than `bound`."""
    gap = f", at most {percent(100 * (1 - bound / seconds))} above the least" if 0 < bound <= seconds else ""
    tell_stage(f"searching meshes: additive cost {duration(seconds)}{gap if isfinite(bound) else ''}")


def tell_stage(stage: str) -> None:
    """Reports what is searched now."""
    best = _best.get()
    LOG.info("%s%s", "" if best is None else f"best so far {duration(best)} a step; ", stage)
