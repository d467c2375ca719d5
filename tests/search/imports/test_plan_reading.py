"""Detection of a file's format, and files of no known format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unity_dsl.search.imports import plan_reading
from unity_dsl.search.imports.plan_reading import read_plan
from unity_dsl.syntax.diagnostic import InputError

from . import test_autoparallel_plan, test_galvatron_plan, test_nnscaler_plan


@pytest.mark.parametrize(
    ("data", "system"),
    [
        (test_galvatron_plan.config(), "Galvatron"),
        (test_nnscaler_plan.PUBLISHED, "nnScaler"),
        (test_autoparallel_plan.saved(test_autoparallel_plan.FSDP), "autoparallel"),
        (test_autoparallel_plan.exported(test_autoparallel_plan.EXPORT, (4,)), "autoparallel"),
    ],
)
def test_a_format_is_known_by_its_fields(data: object, system: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(data, indent=1))
    assert read_plan(tmp_path / "plan.json").system == system


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "E003"),
        (b"\xff\xfe", "E002"),
        (b"pp_deg: 1", "E321"),
        (b"[1, 2]", "E321"),
        (b"{}", "E321"),
        (b'{"mesh": {}, "placements": {}}', "E321"),
        (b"[" * 100_000, "E321"),
    ],
)
def test_what_is_no_plan_is_told(data: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(data)
    with pytest.raises(InputError, match=code):
        read_plan(tmp_path / "plan.json")


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="E001"):
        read_plan(tmp_path / "plan.json")
    monkeypatch.setattr(plan_reading, "MOST_BYTES", 100)
    (tmp_path / "plan.json").write_text(json.dumps(test_galvatron_plan.config()))
    with pytest.raises(InputError, match="E004"):
        read_plan(tmp_path / "plan.json")
