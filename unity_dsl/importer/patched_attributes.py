"""Attributes of torch, Keras and modules that are something else while a module is captured or compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Owners have these values under these names meanwhile."""
    before = [getattr(owner, name) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(changes, before, strict=True):
            setattr(owner, name, value)
