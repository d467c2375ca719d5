"""What a search tells of itself while it is at work: the best plan so far, with its gap, and what is looked at now."""

from __future__ import annotations

from logging import getLogger
from math import isfinite

from ..machine.written_figures import duration, percent

LOG = getLogger(__name__)


def tell_best(seconds: float, bound: float) -> None:
    """A better plan was found; no plan of the meshes that were bounded takes less than `bound`."""
    gap = f", at most {percent(100 * (1 - bound / seconds))} above the least" if 0 < bound <= seconds else ""
    LOG.info("best so far %s a step%s", duration(seconds), gap if isfinite(bound) else "")


def tell_stage(stage: str, seconds: float) -> None:
    """What is searched now, and what the best plan so far takes."""
    LOG.info("%s; best so far %s a step", stage, duration(seconds))
