"""Declarations as they stand: for tests of what follows from them, whether or not their native calls are right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def as_they_stand() -> Iterator[None]:
    """Native calls and derivatives are not tried when declarations are read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unity_dsl.index.declarations.loading.is_tried", lambda *_: True)
        yield
