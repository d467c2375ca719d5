"""Every diagnostic code with what it means, from the .toml files beside this one: `unityc explain CODE` prints it.

E0xx reading and parsing, E1xx `.uop` declarations and calls of operators, E2xx `.udl` models, E3xx devices, machines,
pins, layouts and strategies, E4xx files of out/, E5xx `.rules` substitutions, E54x their proofs and certificates, E55x
files of rules of other systems, E6xx modules of other frameworks. W3xx are warnings.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CODES", "Code"]


@dataclass(frozen=True)
class Code:
    """A fault's title, and a paragraph on why it is a fault and what to do."""

    title: str
    text: str


def _read() -> dict[str, Code]:
    """The entries of all files by code, with each text joined to one paragraph."""
    files = (tomllib.loads(path.read_text()) for path in Path(__file__).parent.glob("*.toml"))
    tables = sorted(pair for file in files for pair in file.items())
    return {code: Code(table["title"], " ".join(table["text"].split())) for code, table in tables}


CODES = _read()
