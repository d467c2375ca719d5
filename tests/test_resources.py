"""The declarative folders are found."""

from __future__ import annotations

import pytest

from unity_dsl.resources import FOLDERS, folder


def test_every_folder_is_found() -> None:
    assert all(folder(name).is_dir() for name in FOLDERS)
    assert (folder("grammar") / "uop.lark").is_file()


def test_another_name_is_refused() -> None:
    with pytest.raises(KeyError):
        folder("unity_dsl")
