"""Reads source files from disk: the only place of this stage that does."""

from __future__ import annotations

from pathlib import Path

from .diagnostic import fail
from .span import Source

MAX_BYTES = 1 << 20  # the largest file a person writes is a few hundred lines; a megabyte is not a model


def read_source(path: Path) -> Source:
    """The text of a file, newlines normalised to `\\n`, a byte order mark removed.

    Raises E001 (cannot be read), E002 (not UTF-8 text), E003 (nothing but white space), E004 (more than 1 MiB).
    """
    data = _read_bytes(path)
    if len(data) > MAX_BYTES:
        raise fail("E004", f"`{path}` is larger than {MAX_BYTES >> 20} MiB", help="is this the file you meant?")
    return decode(str(path), data)


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


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise fail("E001", f"cannot read `{path}`: {reason[0].lower()}{reason[1:]}") from None
    except ValueError as error:  # a zero character in the path
        raise fail("E001", f"cannot read {str(path)!r}: {error}") from None
