"""What the commands share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unity_dsl.console import replace_file
from unity_dsl.syntax.diagnostic import InputError


def test_one_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.uop"
    path.write_text("old")
    path.chmod(0o640)
    replace_file(path, "new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["x.uop"]
    with pytest.raises(InputError):
        replace_file(tmp_path / "missing" / "x.uop", "new")


def test_a_new_file_appears_whole_and_a_link_stays_a_link(tmp_path: Path) -> None:
    replace_file(tmp_path / "new.json", "text")
    assert (tmp_path / "new.json").read_text() == "text"
    (tmp_path / "link.json").symlink_to("new.json")
    replace_file(tmp_path / "link.json", "other")
    assert (tmp_path / "link.json").is_symlink() and (tmp_path / "new.json").read_text() == "other"
