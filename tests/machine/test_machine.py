"""Machine files: the shipped ones, and the diagnostics for wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unity_dsl.machine.machine import Machine, load_machine, read_machine
from unity_dsl.machine.nccl_settings import NcclSettings
from unity_dsl.resources import folder
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

SHIPPED = sorted(path.stem for path in folder("machines").glob("*.toml"))
A100 = (folder("machines") / "dgx-a100.toml").read_text().replace("tf32 = 156\n", "")
WITH_NCCL = re.sub(r"(?m)^(reserved_gb|overlap_slowdown|sustained) = .*\n", "", A100.partition("\n# Derived")[0])
"""Without measured sections, and without keys that have a default, such as the peak of TF32."""
TEXT = re.sub(r"\[nccl\](.|\n)*?(?=\[\[level)", "", WITH_NCCL.replace('collectives = "nccl"\n', ""))
"""A machine file from before files could name NCCL."""


def test_the_shipped_machines() -> None:
    assert set(SHIPPED) >= {"local", "summit", "dgx-a100", "dgx-h100", "h200", "llama3-cluster"}


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
    assert machine.launch_seconds == pytest.approx(10e-6)
    assert [(level.size, level.bandwidth) for level in machine.levels] == [(8, 240e9), (128, 192e9)]
    assert machine.levels[0].latency == pytest.approx(2e-6)
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
        ("memory_gb = 80", "memory_gb = 80\nreserved_gb = -1", "reserved_gb", 5),
        ("memory_gb = 80", "memory_gb = 80\nreserved_gb = true", "reserved_gb", 5),
        ("memory_gb = 80", "memory_gb = 80\nreserved_gb = 80", "leaves nothing", 5),
        ("memory_gb = 80", "memory_gb = 80\noverlap_slowdown = 1", "a fraction below 1", 5),
        ("memory_gb = 80", "memory_gb = 80\noverlap_slowdown = -0.1", "overlap_slowdown", 5),
        ('device = "cuda"', 'device = "tpu"', "device", 3),
        ("f32 = 19.5\n", "f32 = 19.5\ntf32 = 0\n", "tf32", 12),
        ("compute = 0.75", "compute = 75", "compute", 16),
        ("compute = 0.75", "compte = 0.75", "compte", 16),
        ("size = 8", "size = 8.5", "size", 21),
        ("[efficiency]", "[[efficiency]]", "efficiency", 15),
        ("f64 = 9.7", "f32x = 9.7", "f32x", 10),
        ("latency_us = 2\n", "latency_ms = 2\n", "latency_ms", 23),
        ("size = 128", "size = 12.5", "size", 28),
        ("size = 128\n", "", "size", 26),
        ("size = 128", "size = 1" + 400 * "0", "size", 28),
        ("\nlatency_us = 10", "\nlatency_us = 0", "latency_us", 31),
        ("device_bandwidth_gb_per_s = 24", "device_bandwidth_gb_per_s = -24", "device_bandwidth_gb_per_s", 30),
        ("device_bandwidth_gb_per_s = 24", "device_bandwidth_gb_per_s = 240", "192 GB/s of its whole unit", 30),
        ("latency_us = 2", "latency_us = 2\ndevice_bandwidth_gb_per_s = 30", "device_bandwidth_gb_per_s", 24),
        ("latency_us = 2", "latency_us = 2\nnetwork = 1", "network", 24),
        ("latency_us = 2", "latency_us = 2\nnetwork = true", "network", 27),
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


def test_keys_that_have_defaults() -> None:
    """In old files, kernels of a GPU overlapped with collectives slow down by a tenth, and 4 GB of a GPU
    are reserved.
    """
    old, cpu = read(TEXT), read(TEXT.replace('device = "cuda"', 'device = "cpu"'))
    assert (old.collectives.overlap_slowdown, old.memory_bytes) == (0.1, 76e9)
    assert (cpu.collectives.overlap_slowdown, cpu.memory_bytes) == (0.75, 80e9)
    own = read(TEXT.replace("memory_gb = 80", "overlap_slowdown = 0\nmemory_gb = 80\nreserved_gb = 0"))
    assert (own.collectives.overlap_slowdown, own.memory_bytes) == (0.0, 80e9)
    assert old.holding(80 * 10**9).memory_bytes == 80e9, "as --memory says"
    assert read(TEXT.replace("memory_gb = 80", "memory_gb = 3")).memory_bytes == 3e9


def test_what_a_single_device_sends() -> None:
    """By default, a device sends as much as its unit. In dgx-a100, each of the eight cards of a node belongs to one
    GPU.
    """
    assert [level.device_bandwidth for level in read(TEXT).levels] == [240e9, 24e9]
    without = read(TEXT.replace("device_bandwidth_gb_per_s = 24\n", ""))
    assert [level.device_bandwidth for level in without.levels] == [240e9, 192e9]


def test_files_that_name_nccl() -> None:
    """All shipped machines with GPUs name NCCL; the table is optional. Files without the key have no NCCL settings."""
    for name in SHIPPED:
        machine = load_machine(name)
        assert (machine.collectives.nccl is not None) == (machine.device == "cuda")
    assert load_machine("dgx-a100").collectives.nccl == NcclSettings("ampere", "amd", channels=16, network_channels=16)
    assert read(TEXT).collectives.nccl is None
    assert read('collectives = "nccl"\n' + TEXT).collectives.nccl == NcclSettings()


def test_what_a_table_of_nccl_changes() -> None:
    lines = 'link = "pci"\nring_gb_per_s = 230\nnvls = false\nsource = "NCCL_DEBUG=INFO"'
    text = re.sub('source = "16 channels.*', lines, WITH_NCCL.replace("\nchannels = 16", "\nchannels = 24"))
    assert read(text).collectives.nccl == NcclSettings("ampere", "amd", "pci", 24, 16, 230e9, False)


@pytest.mark.parametrize(
    ("before", "after", "word", "line"),
    [
        ('collectives = "nccl"', 'collectives = "mpi"', "`collectives` is one of `nccl`, not `mpi`", 4),
        ('collectives = "nccl"\n', "", "[nccl] is for machines with `collectives", 19),
        ('device = "cuda"', 'device = "cpu"', "NCCL joins GPUs", 4),
        ('generation = "ampere"', 'generation = "turing"', "one of `volta`, `ampere`, `hopper`, not `turing`", 21),
        ('host = "amd"', 'host = "arm"', "one of `intel`, `amd`, not `arm`", 22),
        ('host = "amd"', 'host = "amd"\nlink = "sxm"', "one of `nvlink`, `pci`, not `sxm`", 23),
        ("\nchannels = 16", "\nchannels = 1.5", "whole number", 23),
        ("\nnetwork_channels = 16", "\nnetwork_channels = 0", "above 0", 24),
        ("\nnetwork_channels = 16", "\nring_gb_per_s = -1", "above 0", 24),
        ("\nnetwork_channels = 16", "\nnvls = 1", "true or false", 24),
        ("\nnetwork_channels = 16", "\nchanels = 16", "unknown key `chanels` of [nccl]", 24),
    ],
)
def test_wrong_settings_of_nccl(before: str, after: str, word: str, line: int) -> None:
    assert before in WITH_NCCL
    with pytest.raises(InputError) as raised:
        read(WITH_NCCL.replace(before, after, 1))
    found = raised.value.diagnostic
    assert found.code == "E304"
    assert word in found.message
    assert found.span is not None
    assert found.span.line == line


def test_nodes_are_what_network_cards_join() -> None:
    """If no level is marked as `network`, nodes are the units that the last level joins."""
    nodes = {name: load_machine(name).node_devices for name in SHIPPED}
    assert nodes == {"local": 8, "summit": 6, "dgx-a100": 8, "dgx-h100": 8, "h200": 8, "llama3-cluster": 8}
    alone = TEXT.replace("latency_us = 2", "latency_us = 2\nnetwork = true")
    assert read(alone.replace("\nlatency_us = 10", "\nlatency_us = 10\nnetwork = true")).node_devices == 1


def mixed(first: int, second: int) -> str:
    """Text of a machine of 16 nodes with `first` and `second` devices of two kinds."""
    top, levels = TEXT.split("[[level]]", 1)
    figures = "\n".join(line for line in top.splitlines() if not line.startswith(("name", "device", "#")))
    kinds = ""
    for name, count, memory in (("large", first, 80), ("small", second, 40)):
        told = figures.replace("memory_gb = 80", f"memory_gb = {memory}")
        for table in ("peak_tflops", "efficiency"):
            told = told.replace(f"[{table}]", f"[device_kind.{table}]")
        kinds += f'[[device_kind]]\nname = "{name}"\ncount = {count}\n{told}\n'
    return f'name = "mixed"\ndevice = "cuda"\n{kinds}\n[[level]]{levels}'.replace("size = 128", "size = 16")


def test_two_kinds_of_device() -> None:
    """All devices do the same work, so the machine as a whole has the minimum of both kinds, less 4 GB that are
    reserved.
    """
    machine = read(mixed(32, 96))
    assert [(kind.name, kind.count, kind.memory_bytes) for kind in machine.kinds] == [
        ("large", 32, 76e9),
        ("small", 96, 36e9),
    ]
    assert machine.memory_bytes == 36e9
    own = read(mixed(32, 96).replace("memory_gb = 40", "memory_gb = 40\nreserved_gb = 1"))
    assert [kind.memory_bytes for kind in own.kinds] == [76e9, 39e9]
    assert machine.peak == read(TEXT).peak
    assert read(TEXT).kinds == ()


def test_each_kind_may_keep_its_own_part_of_the_speed_of_products() -> None:
    grid = '[[product]]\nclass = "contraction"\ndtype = "bf16"\ndirection = "forward"\nbatched = false\n'
    grid += "rows = [64]\ncolumns = [64]\ninner = [64]\ntime_us = [[[90]]]\n"
    text = mixed(32, 96) + grid
    assert [found.seconds.item() for found in read(text).measured.grids.values()] == [pytest.approx(90e-6)]
    slower = text.replace("compute = 0.75", "compute = 0.75\nsustained = 0.9", 1)
    assert [found.seconds.item() for found in read(slower).measured.grids.values()] == [pytest.approx(100e-6)]


@pytest.mark.parametrize(
    ("before", "after", "word", "line"),
    [
        ("count = 32", "count = 36", "do not fill units of 8", 5),
        ("count = 32", "count = 40", "136 devices", 3),
        ("count = 32", "count = -32", "count", 5),
        ("count = 96\n", "", "count", 21),
        ('name = "small"', 'name = "large"', "two", 22),
        ("memory_gb = 40", "memory_gb = -40", "memory_gb", 24),
        ('device = "cuda"\n', 'device = "cuda"\nmemory_gb = 80\n', "memory_gb", 3),
        ("[device_kind.efficiency]", "[device_kind.efficency]", "efficency", 17),
    ],
)
def test_kinds_that_contradict_the_rest(before: str, after: str, word: str, line: int) -> None:
    text = mixed(32, 96)
    assert before in text
    with pytest.raises(InputError) as raised:
        read(text.replace(before, after, 1))
    found = raised.value.diagnostic
    assert found.code == "E304"
    assert word in found.message
    assert found.span is not None
    assert found.span.line == line, text


def test_units_of_one_kind_are_those_of_the_first_level() -> None:
    assert [kind.count for kind in read(mixed(40, 88)).kinds] == [40, 88]
    with pytest.raises(InputError) as raised:
        read(mixed(36, 92))
    name = read(mixed(32, 96)).levels[0].name
    assert f"`{name}`" in raised.value.diagnostic.help


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


def test_levels_have_names_of_their_own() -> None:
    head, first, second = TEXT.split("[[level]]")
    name = next(line for line in first.splitlines() if line.startswith("name"))
    other = next(line for line in second.splitlines() if line.startswith("name"))
    text = f"{head}[[level]]{first}[[level]]{second.replace(other, name)}"
    with pytest.raises(InputError) as raised:
        read(text)
    found = raised.value.diagnostic
    assert found.code == "E304" and "two [[level]]" in found.message
    assert found.span is not None and found.span.line == text[: text.rindex(name)].count("\n") + 1
