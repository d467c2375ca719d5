"""Writing out/: completely or not at all, and never over a user's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unity_dsl.emit.output_folder import edited_files, write_files
from unity_dsl.emit.plan_file import NAME
from unity_dsl.syntax.diagnostic import InputError

from .test_plan_file import text_of_plan


def program(**texts: str) -> dict[str, str]:
    files = {name.replace("_py", ".py"): text for name, text in texts.items()}
    return {**files, NAME: text_of_plan(files=files)}


def refusal(files: dict[str, str], out: Path) -> str:
    """The error code with which writing is refused. Asserts that nothing changed."""
    below = out if os.path.isdir(out) else out.parent
    before = contents(below)
    with pytest.raises(InputError) as caught:
        write_files(files, out)
    assert contents(below) == before
    return caught.value.diagnostic.code


def contents(folder: Path) -> dict[str, bytes | None]:
    """All files and folders below a folder, including hidden and temporary ones."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_new_folder_holds_exactly_the_files(tmp_path: Path) -> None:
    files = program(model_py="a = 1\n", train_py="b = 2\n")
    written = write_files(files, tmp_path / "deep" / "out")
    assert [path.name for path in written] == list(files)
    assert contents(tmp_path / "deep" / "out") == {name: text.encode() for name, text in files.items()}
    assert os.listdir(tmp_path / "deep") == ["out"]


def test_files_can_be_read_by_others_as_umask_says(tmp_path: Path) -> None:
    write_files(program(model_py="a = 1\n"), tmp_path / "out")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    write_files(program(model_py="a = 1\n"), tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["model.py", NAME]


def test_compiling_again_replaces_and_removes_what_is_ours(tmp_path: Path) -> None:
    write_files(program(model_py="a = 1\n", kernels_py="k = 1\n"), tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "w").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    write_files(program(model_py="a = 2\n", data_py="d = 1\n"), tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["checkpoints", "data.py", "model.py", "notes.txt", NAME]
    assert (tmp_path / "model.py").read_text() == "a = 2\n"
    assert (tmp_path / "checkpoints" / "w").read_text() == "mine"
    assert edited_files(tmp_path) == []


def test_edited_files_are_not_overwritten(tmp_path: Path) -> None:
    write_files(program(model_py="a = 1\n", train_py="b = 1\n"), tmp_path)
    (tmp_path / "train.py").write_text("b = 1  # my change\n")
    assert edited_files(tmp_path) == ["train.py"]
    assert refusal(program(model_py="a = 2\n", train_py="b = 1\n"), tmp_path) == "E402"
    assert refusal(program(model_py="a = 2\n"), tmp_path) == "E402"
    write_files(program(model_py="a = 2\n", train_py="b = 2\n"), tmp_path, force=True)
    assert (tmp_path / "train.py").read_text() == "b = 2\n"


def test_a_file_of_the_user_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    write_files(program(model_py="a = 1\n"), tmp_path)
    (tmp_path / "data.py").write_text("mine\n")
    assert refusal(program(model_py="a = 1\n", data_py="d = 1\n"), tmp_path) == "E402"


def test_a_file_the_user_removed_is_written_again(tmp_path: Path) -> None:
    write_files(program(model_py="a = 1\n"), tmp_path)
    (tmp_path / "model.py").unlink()
    write_files(program(model_py="a = 1\n"), tmp_path)
    assert (tmp_path / "model.py").exists()


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert refusal(program(model_py="a = 1\n"), tmp_path) == "E402"
    write_files(program(model_py="a = 1\n"), tmp_path, force=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_damaged_plan_makes_a_folder_not_ours(tmp_path: Path) -> None:
    write_files(program(model_py="a = 1\n"), tmp_path)
    (tmp_path / NAME).write_text("{")
    assert refusal(program(model_py="a = 1\n"), tmp_path) == "E402"


def test_a_file_as_output_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    assert refusal(program(model_py="a = 1\n"), tmp_path / "out") == "E401"
    assert refusal(program(model_py="a = 1\n"), tmp_path / "out" / "below") == "E401"


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Uses a name longer than file systems allow, because permissions do not bind every user."""
    assert refusal(program(model_py="a = 1\n"), tmp_path / ("x" * 300)) == "E401"
    assert refusal(program(model_py="a = 1\n") | {"y" * 300: ""}, tmp_path) == "E401"


def test_a_failure_half_way_puts_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(program(model_py="a = 1\n", old_py="o\n"), tmp_path)
    replace, calls = os.replace, []

    def fail_at_the_third(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_at_the_third)
    assert refusal(program(model_py="a = 2\n", new_py="n\n", train_py="t\n"), tmp_path) == "E401"
