"""Files that are no sources are reported as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.syntax.diagnostic import Diagnostic, InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import MAX_BYTES, read_source
from unity_dsl.syntax.render import render


def refused(path: Path) -> Diagnostic:
    with pytest.raises(InputError) as caught:
        read_source(path)
    assert str(path).replace("\0", "\\x00") in caught.value.diagnostic.message
    assert render(caught.value.diagnostic).startswith("error[E00")
    return caught.value.diagnostic


def test_a_source_is_named_after_its_path(tmp_path: Path) -> None:
    path = tmp_path / "m.udl"
    path.write_bytes(b"\xef\xbb\xbfmodel m # \xc3\xa9\r\n  loss x\r  output x")
    source = read_source(path)
    assert (source.name, source.text) == (str(path), "model m # é\n  loss x\n  output x")
    assert parse_model(source).model.name == "m"


def test_a_path_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.udl", tmp_path, tmp_path / "\0", tmp_path / ("a" * 5000)):
        assert refused(path).code == "E001"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"model m\n  loss \xff\n", "E002"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "E002"),
        (b"model m\0", "E002"),
        ("model m".encode("utf-16"), "E002"),
        (b"", "E003"),
        (b"\n  \t\r\n\n", "E003"),
        (b"\xef\xbb\xbf", "E003"),
        (b"# " + b"x" * MAX_BYTES, "E004"),
        (b"\0" * (10 << 20), "E004"),
        (b"# padding\n" * (1 << 20), "E004"),
    ],
    ids=range(10),
)
def test_a_file_that_is_no_source(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "m.udl"
    path.write_bytes(data)
    assert refused(path).code == code


def test_the_largest_file_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.udl"
    path.write_bytes(b"model m\n  loss x\n#" + b"x" * (MAX_BYTES - 18))
    assert path.stat().st_size == MAX_BYTES
    assert parse_model(read_source(path)).model.name == "m"
