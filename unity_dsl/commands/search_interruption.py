"""An interruption that ends a search, whose best plan is then taken, but not the command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from ..search.search_end import SearchEnd


@contextmanager
def ending_search(seconds: float | None, begun: float) -> Iterator[SearchEnd]:
    """The end of a search that begins in this context: `seconds` after the command had `begun`, or at the first
    interruption of the search. A second interruption, or one before the search begins, interrupts the command.
    """
    end, before = SearchEnd(seconds, begun), signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler and current_thread() is main_thread()

    def interrupted(number: int, frame: FrameType | None) -> None:
        if not end.searching or end.interrupted:
            signal.default_int_handler(number, frame)
        end.interrupt()

    if ours:
        signal.signal(signal.SIGINT, interrupted)
    try:
        yield end
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
