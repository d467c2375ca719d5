"""Broken snippets and their mistakes. They determine the message of a syntax error and are the corpus of its test.

A snippet represents every text that stops the parser in the same state; see `diagnose`. The .toml files in this folder
hold the snippets of each language; each snippet is put into a frame, at `{}`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MISTAKES", "Mistake"]


@dataclass(frozen=True)
class Mistake:
    """Texts that fail in one way. `any_token` says that the fault is the same whatever token follows."""

    code: str
    message: str
    snippets: tuple[str, ...]
    label: str = ""
    help: str = ""
    any_token: bool = False


def _read(name: str) -> tuple[Mistake, ...]:
    table = tomllib.loads((Path(__file__).parent / name).read_text())
    return tuple(_mistake(entry, table["frames"]) for entry in table["mistakes"])


def _mistake(entry: dict[str, Any], frames: dict[str, str]) -> Mistake:
    snippets = (frame.replace("{}", text) for kind, frame in frames.items() for text in entry.pop(kind, ()))
    return Mistake(snippets=tuple(snippets), **entry)


MISTAKES = {"uop": _read("operators.toml"), "udl": _read("models.toml"), "rules": _read("rules.toml")}
