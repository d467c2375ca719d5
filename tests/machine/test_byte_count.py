"""Parsing and printing of memory amounts."""

from __future__ import annotations

import pytest

from unity_dsl.machine.byte_count import describe_bytes, parse_bytes
from unity_dsl.syntax.diagnostic import InputError


@pytest.mark.parametrize(
    ("text", "count"),
    [("40GB", 40e9), ("1.5 GiB", 1.5 * 2**30), ("2gb", 2e9), (" 3 kB ", 3000), ("512MiB", 2**29), ("7B", 7)],
)
def test_amounts(text: str, count: float) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "40", "GB", "-1GB", "4 0GB", "1e9B", "3 GX", "0GB", "0.0001B", "nan GB", "1.GB"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_bytes(text)
    assert raised.value.diagnostic.code == "E312" and raised.value.diagnostic.help


def test_they_are_told_with_three_digits() -> None:
    counts = (1.5e12, 80e9, 999_999, 1.2345e7, 256, 0)
    assert [describe_bytes(count) for count in counts] == [
        "1500 GB",
        "80 GB",
        "1 MB",
        "12.3 MB",
        "256 bytes",
        "0 bytes",
    ]
