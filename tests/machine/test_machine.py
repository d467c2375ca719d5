"""Machine files: the shipped ones, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.machine.machine import Machine, load_machine, read_machine
from unity_dsl.resources import folder
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

SHIPPED = sorted(path.stem for path in folder("machines").glob("*.toml"))
TEXT = (folder("machines") / "dgx-a100.toml").read_text()


def test_the_shipped_machines() -> None:
    assert set(SHIPPED) >= {"local", "summit", "dgx-a100", "dgx-h100", "h200"}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_machine_is_sound(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert machine.peak["f64"] <= machine.peak["f32"] <= machine.peak["f16"]
    assert machine.memory_bytes > 1e9
    slower = zip(machine.levels, machine.levels[1:], strict=False)
    for level, (fast, slow) in enumerate(slower):
        shared = machine.devices_below(level + 1)
        assert slow.bandwidth / shared < fast.bandwidth
        assert slow.latency >= fast.latency


def test_units() -> None:
    machine = load_machine("dgx-a100")
    assert machine.peak["f32"] == 19.5e12
    assert machine.memory_bandwidth == 2039e9
    assert machine.launch_seconds == pytest.approx(6e-6)
    assert [(level.size, level.bandwidth) for level in machine.levels] == [(8, 300e9), (128, 200e9)]
    assert machine.levels[0].latency == pytest.approx(8e-6)
    assert machine.devices == 1024
    assert [machine.devices_below(level) for level in (0, 1)] == [1, 8]
    assert load_machine("summit").devices == 192


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace("size = 128", "size = 4"))
    assert load_machine(str(path)).devices == 32


def test_no_such_machine(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        load_machine("dgx-a1000")
    assert raised.value.diagnostic.code == "E301"
    assert "dgx-a100" in raised.value.diagnostic.help
    with pytest.raises(InputError):
        load_machine(str(tmp_path / "absent.toml"))


def read(text: str) -> Machine:
    return read_machine(Source("mine.toml", text))


@pytest.mark.parametrize(
    ("before", "after", "word", "line"),
    [
        ("memory_gb = 80", "memory_gb = -1", "memory_gb", 4),
        ("memory_gb = 80", "memory_gb = true", "memory_gb", 4),
        ("memory_gb = 80", 'memory_gb = "80"', "memory_gb", 4),
        ("memory_gb = 80", "memory_gb = inf", "memory_gb", 4),
        ("memory_gb = 80", "memory_bg = 80", "memory_bg", 4),
        ("memory_gb = 80\n", "", "memory_gb", 1),
        ('device = "cuda"', 'device = "tpu"', "device", 3),
        ("compute = 0.75", "compute = 75", "compute", 16),
        ("compute = 0.75", "compte = 0.75", "compte", 16),
        ("size = 8", "size = 8.5", "size", 21),
        ("[efficiency]", "[[efficiency]]", "efficiency", 15),
        ("f64 = 9.7", "f32x = 9.7", "f32x", 10),
        ("latency_us = 8\n", "latency_ms = 8\n", "latency_ms", 23),
    ],
)
def test_wrong_files_are_told_where(before: str, after: str, word: str, line: int) -> None:
    assert before in TEXT
    with pytest.raises(InputError) as raised:
        read(TEXT.replace(before, after))
    found = raised.value.diagnostic
    assert found.code == "E304"
    assert word in found.message
    assert found.span is not None
    assert found.span.line == line


def test_misspelt_keys_are_suggested() -> None:
    with pytest.raises(InputError) as raised:
        read(TEXT.replace("memory_gb", "memory_bg"))
    assert "memory_gb" in raised.value.diagnostic.help


@pytest.mark.parametrize("text", ["name =", "name = 1 2", "\x00", "[a]\n[a]"])
def test_what_is_not_toml(text: str) -> None:
    with pytest.raises(InputError) as raised:
        read(text)
    assert raised.value.diagnostic.code == "E304"


def test_levels_are_needed() -> None:
    head = TEXT.split("[[level]]")[0]
    for text in (head, head + "level = []\n", head + "[level]\nsize = 2\n"):
        with pytest.raises(InputError) as raised:
            read(text)
        assert raised.value.diagnostic.code == "E304"
