"""Published rule files, which are not part of the repository: in $UNITY_DSL_DATA, or in ../shared/data beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("UNITY_DSL_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
TASO = "taso_graph_subst.pb"
UNITY = "unity_graph_subst_3_v2.json"


def published(name: str) -> Path:
    """The path of a published file. The test is skipped if the file is missing."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{name} is not here: UNITY_DSL_DATA names the folder that holds it")
    return path
