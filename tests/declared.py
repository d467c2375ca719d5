"""Reads declarations without trying them, for tests that do not depend on whether native calls are right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def as_they_stand() -> Iterator[None]:
    """Skips the trials of native calls and derivatives when declarations are read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unity_dsl.index.declarations.loading.is_tried", lambda *_: True)
        yield
