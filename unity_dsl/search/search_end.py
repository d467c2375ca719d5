"""When a search ends before it is through: at a deadline, or because its user interrupts it.

The long loops of a search call `check_end`, which raises SearchEnded from then on. Whoever has a plan by then catches
it and goes on with that; the next loop raises again, and so the best plan that is known comes out. Only the process
that began the search ends it: those that it forked are ended by it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic


class SearchEnded(BaseException):
    """The search ends here: no error, and not caught as one. `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class SearchEnd:
    """Ends a search so many `seconds` after it was begun, if there are any, or once `interrupt` is called, as a handler
    of signals may do at any time. `raised` says that it was ended, `searching` that it has begun and not found its end.
    """

    seconds: float | None = None
    raised: bool = False
    interrupted: bool = False
    searching: bool = False
    _begun: float | None = None
    _process: int = field(default_factory=os.getpid)

    def interrupt(self) -> None:
        self.interrupted = True

    @contextmanager
    def of_search(self) -> Iterator[None]:
        """Ends what is searched in this context; its seconds count from here on."""
        self._begun, self.searching = monotonic(), True
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
        """Seconds until the deadline; None without one."""
        if self.seconds is None or self._begun is None:
            return self.seconds
        return self.seconds - (monotonic() - self._begun)


_end: ContextVar[SearchEnd | None] = ContextVar("_end", default=None)


@contextmanager
def ended_by(end: SearchEnd | None) -> Iterator[None]:
    """A search in this context ends so; with None it goes on until it is through."""
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
    """Until the deadline, for a solver that has its own clock: at least a little, and `most` without one."""
    end = _end.get()
    left = None if end is None else end.left()
    return most if left is None else min(most, max(0.01, left))
