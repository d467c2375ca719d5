"""Progress of long work on stderr: one line that is renewed on a terminal, else a line every ten seconds."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import click

from .console import LIBRARY

EVERY = 1.0
"""Seconds between renewals on a terminal."""
EVERY_LINE = 10.0
"""Seconds between lines if stderr is not a terminal."""


class _Progress(threading.Thread):
    """Shows the last message again and again, with the seconds since the beginning, until it is ended."""

    def __init__(self, what: str, terminal: bool) -> None:
        super().__init__(daemon=True)
        self.what, self.terminal = what, terminal
        self.last, self.begun, self.process = "", monotonic(), os.getpid()
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(EVERY if self.terminal else EVERY_LINE):
            self.show()

    def tell(self, message: str) -> None:
        """Records a message. Forked processes call this too, but show nothing."""
        self.last = message
        if self.terminal and os.getpid() == self.process:
            self.show()

    def show(self) -> None:
        seconds = f" ({monotonic() - self.begun:.0f} s)"
        text = f"{self.what}: {self.last}" if self.last else self.what
        if not self.terminal:
            click.echo(f"unityc: {text}{seconds}", err=True)
            return
        width = shutil.get_terminal_size().columns - 1 - len(seconds)
        click.echo(f"\r{text[:width]}{seconds}\x1b[K", nl=False, err=True)

    def end(self) -> None:
        self.ended.set()
        self.join()
        if self.terminal:
            click.echo("\r\x1b[K", nl=False, err=True)


@contextmanager
def say_progress(what: str) -> Iterator[Callable[[str], None]]:
    """While this context lasts, shows the last message that the library logged, or that the caller passed to the
    returned function.
    """
    progress = _Progress(what, sys.stderr.isatty())

    class Line(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            progress.tell(record.getMessage())

    logger, line = logging.getLogger(LIBRARY), Line(logging.INFO)
    before = logger.level
    if progress.terminal:
        progress.show()
    progress.start()
    logger.addHandler(line)
    logger.setLevel(logging.INFO)
    try:
        yield progress.tell
    finally:
        logger.removeHandler(line)
        logger.setLevel(before)
        progress.end()
