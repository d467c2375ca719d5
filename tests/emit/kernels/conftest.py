"""Fixtures of the tests of kernels."""

from __future__ import annotations

import pytest

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library


@pytest.fixture(scope="session")
def library() -> Library:
    return load_library()
