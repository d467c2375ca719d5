"""How a search ends early: at a deadline, or because its user interrupts it.

The long loops of a search call `check_end`, which raises SearchEnded from then on. A caller that has a plan by then
catches it and goes on with that plan. The next loop raises again, so that the best known plan is returned. If that
takes too long, a timer raises SearchAbandoned, which nothing in a search catches: then the incumbent is the result.
Only the process that began the search ends it; processes that it forked are ended by it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import current_thread, main_thread
from time import monotonic
from types import FrameType

GRACE, LEAST_GRACE = 0.7, 1.0
"""Time from the end of a search until it is abandoned: a fraction of the reserve, and at least so many seconds."""
REPEATED = 0.5
"""Seconds after which an abandoned search is abandoned again: a destructor may have swallowed the first exception."""


class SearchEnded(BaseException):
    """Ends the search. It is no error, and not caught as one. `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SearchAbandoned(BaseException):
    """The search was ended and did not finish in time: the incumbent is the result."""


@dataclass
class SearchEnd:
    """Ends a search `seconds` after it, or the command that it is part of, had `begun`, if there is such a limit; or
    once `interrupt` is called, as a signal handler may do at any time. The deadline is earlier by the `reserve`, the
    seconds that writing the plan takes. `raised` says that the search was ended, `searching` that it is running.
    """

    seconds: float | None = None
    begun: float | None = None
    reserve: float = 0.0
    raised: bool = False
    interrupted: bool = False
    searching: bool = False
    _abandoning: bool = False
    _process: int = field(default_factory=os.getpid)

    def interrupt(self) -> None:
        self.interrupted = True
        if self._abandoning:
            signal.setitimer(signal.ITIMER_REAL, self._grace, REPEATED)

    @contextmanager
    def abandoning(self) -> Iterator[None]:
        """Raises SearchAbandoned in this context once most of the reserve has passed since the search should have
        ended. Only the main thread can do so: in others a search ends by itself, if later.
        """
        if current_thread() is not main_thread():
            yield
            return

        def abandon(number: int, frame: FrameType | None) -> None:
            if self._process == os.getpid():
                raise SearchAbandoned

        before, left = signal.signal(signal.SIGALRM, abandon), self.left()
        self._abandoning = True
        try:
            if left is not None:
                signal.setitimer(signal.ITIMER_REAL, max(0.0, left) + self._grace, REPEATED)
            yield
        finally:
            self._abandoning = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @property
    def _grace(self) -> float:
        return max(LEAST_GRACE, GRACE * self.reserve)

    @contextmanager
    def of_search(self) -> Iterator[None]:
        """Ends searches in this context. Their seconds count from here on, unless they began before."""
        self.begun, self.searching = monotonic() if self.begun is None else self.begun, True
        try:
            with ended_by(self):
                yield
        finally:
            self.searching = False

    def reason(self) -> str | None:
        """Why the search ends now; None while it goes on."""
        if self._process != os.getpid():
            return None
        if self.interrupted:
            return "an interruption"
        left = self.left()
        return None if left is None or left > 0 else f"its time limit of {self.seconds:g} s"

    def left(self) -> float | None:
        """Seconds until the search ends; None without a limit."""
        if self.seconds is None or self.begun is None:
            return self.seconds
        return self.seconds - self.reserve - (monotonic() - self.begun)


_end: ContextVar[SearchEnd | None] = ContextVar("_end", default=None)


@contextmanager
def ended_by(end: SearchEnd | None) -> Iterator[None]:
    """Searches in this context end by `end`; with None they run until they are through."""
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def check_end() -> None:
    """Raises SearchEnded where the search is to end now."""
    end = _end.get()
    if end is not None and (reason := end.reason()) is not None:
        end.raised = True
        raise SearchEnded(reason)


def why_ended() -> str | None:
    """Why a loop of the search was ended; None where none was."""
    end = _end.get()
    return end.reason() if end is not None and end.raised else None


def seconds_left(most: float) -> float:
    """Seconds until the deadline, for a solver that has its own clock: at least 0.01, at most `most`; `most` without
    one.
    """
    end = _end.get()
    left = None if end is None else end.left()
    return most if left is None else min(most, max(0.01, left))
