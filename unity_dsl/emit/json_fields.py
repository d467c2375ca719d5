"""Fields of data that were read from JSON, each checked for its type."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any


class Garbled(Exception):
    """Data lack a field, or have one of a wrong type or value; the message says which."""


def as_table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Garbled(f"{where} is not a table")
    return value


def as_list(value: object, where: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise Garbled(f"{where} is not a list")
    return value


def as_text(value: object, where: str) -> str:
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
        raise Garbled(f"{where} is not a text")
    return value


def as_count(value: object, where: str, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Garbled(f"{where} is not a positive number" if least else f"{where} is no count")
    return value


def as_amount(value: object, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < inf:
        raise Garbled(f"{where} is no amount")
    return float(value)
