"""Reads source files from disk; nothing else in syntax/ does."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .diagnostic import fail
from .span import Source

MAX_BYTES = 1 << 20  # the largest file a person writes is a few hundred lines; a megabyte is not a model


def read_source(path: Path, most: int = MAX_BYTES) -> Source:
    """The text of a file, newlines normalised to `\\n`, a byte order mark removed.

    Raises E001 (cannot be read), E002 (not UTF-8 text), E003 (nothing but white space), E004 (more than `most` bytes).
    """
    name, data = printable(path), read_data(path, most + 1)
    if len(data) > most:
        raise fail("E004", f"`{name}` is larger than {most >> 20} MiB", help="is this the file you meant?")
    return decode(name, data)


def read_data(path: Path, most: int) -> bytes:
    """The first `most` bytes of a file. Raises E001 where it cannot be read."""
    try:
        return read_bytes(path, most)
    except OSError as error:
        reason = error.strerror or str(error)
        raise fail("E001", f"cannot read `{printable(path)}`: {reason[0].lower()}{reason[1:]}") from None


def printable(path: Path) -> str:
    """A path as text that can be shown and stored: control characters and bytes that are not UTF-8 are escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(path))


def decode(name: str, data: bytes) -> Source:
    """Bytes to a source. Raises E002 and E003 as `read_source` does."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise fail("E002", f"`{name}` is not UTF-8 text: {place}", help="is this the file you meant?") from None
    if "\0" in text:
        offset = data.index(b"\0")
        raise fail(
            "E002", f"`{name}` is a binary file: zero byte at offset {offset}", help="is this the file you meant?"
        )
    if not text.strip():
        raise fail("E003", f"`{name}` is empty")
    return Source(name, text.replace("\r\n", "\n").replace("\r", "\n"))


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The first `most` bytes of a file, or all. Raises OSError, also for pipes and devices, which may never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except ValueError as error:  # a zero character in the path
        raise OSError(str(error)) from None
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        raise OSError(0, "Is a directory" if stat.S_ISDIR(kind) else "Is not a regular file")
    with open(descriptor, "rb") as file:
        return file.read() if most is None else file.read(most)
