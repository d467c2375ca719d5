"""Reads a rule file of another system in any known format."""

from __future__ import annotations

from pathlib import Path

from ...syntax.diagnostic import fail
from ...syntax.read import printable, read_data
from .file_rules import MAX_RULES, RuleFile, check_rule_graphs
from .taso_file import parse_taso
from .unity_file import parse_unity

MAX_JSON_BYTES = 8 << 20
MAX_PROTOBUF_BYTES = 1 << 20
"""File size limits. Parsed, JSON takes at most about thirty times its size, a protobuf message a hundred times."""


def read_rule_file(path: Path) -> RuleFile:
    """The rules of a file, with checked graphs. A file that begins with a brace or bracket is read as JSON, any other
    as protobuf.

    Raises E001 if it cannot be read, E003 if it is empty, E551 if it has no known format, E552 to E554 for faulty
    rules, E555 if it is too large.
    """
    name, data = printable(path), read_data(path, MAX_JSON_BYTES + 1)
    if not data.strip():
        raise fail("E003", f"`{name}` is empty")
    is_json = data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))
    most = MAX_JSON_BYTES if is_json else MAX_PROTOBUF_BYTES
    if len(data) > most:
        raise fail("E555", f"`{name}` is larger than {most >> 20} MiB", help="is this the file you meant?")
    file = parse_unity(data, name) if is_json else parse_taso(data, name)
    if len(file.rules) > MAX_RULES:
        raise fail("E555", f"`{name}` has {len(file.rules):,} rules, {MAX_RULES:,} are read at most")
    for rule in file.rules:
        check_rule_graphs(rule)
    return file
