"""Pauses the garbage collector while a stage creates many long-lived objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Within this context the garbage collector is off. Types, graphs and plans only refer to their parts, so reference
    counting frees them. The collector would walk over a million of them in vain, a sixth of the time of a search.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
