"""Printing, progress, interruption and file replacement, shared by all commands."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..syntax.diagnostic import Diagnostic


LIBRARY = __name__.partition(".")[0]
"""The package, whose modules log what they work on."""


def show_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Prints lines with labels in a column, bold on a terminal. Lines are never folded, so that output can be piped."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        click.echo(click.style(f"{label:<{width}}  ", bold=True) + text)


def show_progress() -> None:
    """On a terminal, say on stderr which declarations are tried, one per line."""
    if sys.stderr.isatty():
        import logging

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("\r\x1b[Kunityc: %(message)s"))
        logger = logging.getLogger(f"{LIBRARY}.index")
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)


def show_diagnostic(diagnostic: Diagnostic) -> None:
    """Prints an input error or a warning on stderr, coloured on a terminal."""
    from ..syntax.render import render

    text = render(diagnostic).rstrip("\n")
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        text = _coloured(text)
    click.echo(text, err=True)


def show_usage_error(error: click.ClickException) -> None:
    """Prints an error of the command line on stderr, with very long arguments shortened."""
    from ..syntax.render import shortened

    text = StringIO()
    error.show(text)
    for line in text.getvalue().splitlines():
        click.echo(shortened(line), err=True)


def _coloured(text: str) -> str:
    text = re.sub(r"\berror\[E\d+\]", lambda part: click.style(part[0], fg="red", bold=True), text)
    text = re.sub(r"\bwarning\[W\d+\]", lambda part: click.style(part[0], fg="yellow", bold=True), text)
    text = re.sub(r"(?m)^ *\| *\^.*$", lambda part: click.style(part[0], fg="red"), text)
    return re.sub(r"(?m)^(?:help|note):", lambda part: click.style(part[0], fg="cyan", bold=True), text)


def keep_interruptions() -> None:
    """Make sure that no interruption is lost while the process runs.

    Python cannot propagate an exception from a finaliser. A SIGINT that arrives while one runs would be shown and
    forgotten, and every formula of z3 has a finaliser. Such an interruption is sent once more, a moment later.
    """
    show = sys.unraisablehook

    def send_again(raised: sys.UnraisableHookArgs) -> None:
        if not issubclass(raised.exc_type, KeyboardInterrupt):
            show(raised)
        elif not sys.is_finalizing():
            later = threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
            later.daemon = True
            later.start()

    sys.unraisablehook = send_again


def print_anything() -> None:
    """Escape characters that the output's encoding lacks: micro signs in ASCII, file names that are not UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def check_writable(path: Path) -> None:
    """Raises E030 at once for a file that could not be written after minutes of work."""
    from ..syntax.diagnostic import fail

    folder = path.resolve().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise fail("E030", f"cannot write `{path}`: {folder} is no folder that can be written to")


def replace_file(path: Path, contents: str | bytes) -> None:
    """Give a file new contents in one step: an interruption leaves the old ones. Raises E030 if it cannot."""
    from ..syntax.diagnostic import fail

    # A symbolic link is kept: the file that it points to is replaced.
    target = path.resolve()
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        new.write_bytes(contents.encode() if isinstance(contents, str) else contents)
        if target.exists():
            shutil.copymode(target, new)
        os.replace(new, target)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise fail("E030", f"cannot write `{path}`: {error.strerror or error}") from None
