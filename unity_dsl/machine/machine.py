"""Machine files: one kind of device, and the links between devices by level, fastest first."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from ..resources import folder
from ..syntax.diagnostic import fail, suggest
from ..syntax.read import read_source
from ..syntax.span import Source, Span
from .toml_table import TomlTable

FLOAT_TYPES = ("f64", "f32", "bf16", "f16")


@dataclass(frozen=True)
class Link:
    """One level of the interconnect: `size` units of the level below (devices, at level 0) reach each other through it.

    `bandwidth` is what one such unit sends, bytes per second in one direction; the groups that cross the level at the
    same time share it. `latency` is of one hop, seconds.
    """

    name: str
    size: int
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Machine:
    """`peak` is flops per second by dtype, bandwidths are bytes per second, times are seconds.

    `compute_efficiency` and `memory_efficiency` are the fractions of peak and of memory bandwidth that kernels reach.
    """

    name: str
    device: str
    peak: Mapping[str, float] = field(hash=False)
    memory_bandwidth: float
    memory_bytes: float
    launch_seconds: float
    compute_efficiency: float
    memory_efficiency: float
    levels: tuple[Link, ...]

    @property
    def devices(self) -> int:
        return prod(level.size for level in self.levels)

    def devices_below(self, level: int) -> int:
        """Devices that share one unit's link of a level: 1 at level 0, a node's devices where nodes are joined."""
        return prod(link.size for link in self.levels[:level])


def machine_source(name_or_path: str) -> Source:
    """The text of a shipped machine, or of a `.toml` file. Raises E301 when there is none."""
    if name_or_path.endswith(".toml"):
        return read_source(Path(name_or_path))
    shipped = {path.stem: path for path in sorted(folder("machines").glob("*.toml"))}
    if name_or_path not in shipped:
        hint = suggest(name_or_path, shipped) or f"there are {', '.join(shipped)}; or give the path of a .toml file"
        raise fail("E301", f"there is no machine called `{name_or_path}`", help=hint)
    return read_source(shipped[name_or_path])


def load_machine(name_or_path: str) -> Machine:
    """A shipped machine by name, or that of a `.toml` file. Raises E301 when there is none, E304 when it is wrong."""
    return read_machine(machine_source(name_or_path))


def read_machine(source: Source) -> Machine:
    """The machine that a toml text describes. Raises E304, with the line of the faulty key."""
    try:
        table = tomllib.loads(source.text)
    except RecursionError:
        raise fail("E304", "not a machine: its tables are nested too deeply", Span(source, 0, 0)) from None
    except ValueError as error:  # of tomllib, or of Python for a number with thousands of digits
        raise fail("E304", f"not a toml file: {error}", Span(source, 0, 0)) from None
    reader = TomlTable(source, table)
    reader.only(_TOP_KEYS)
    peak, efficiency = reader.table("peak_tflops"), reader.table("efficiency")
    peak.only(FLOAT_TYPES)
    efficiency.only(("compute", "memory"))
    device = reader.text("device")
    if device not in ("cpu", "cuda"):
        raise reader.fault("device", f"`device` is `cpu` or `cuda`, not `{device}`")
    return Machine(
        name=reader.text("name"),
        device=device,
        peak={dtype: peak.positive(dtype) * 1e12 for dtype in FLOAT_TYPES},
        memory_bandwidth=reader.positive("memory_bandwidth_gb_per_s") * 1e9,
        memory_bytes=reader.positive("memory_gb") * 1e9,
        launch_seconds=reader.positive("launch_latency_us") * 1e-6,
        compute_efficiency=efficiency.fraction("compute"),
        memory_efficiency=efficiency.fraction("memory"),
        levels=tuple(_link(level) for level in reader.tables("level")),
    )


_TOP_KEYS = (
    *("name", "device", "memory_gb", "memory_bandwidth_gb_per_s", "launch_latency_us"),
    *("source", "peak_tflops", "efficiency", "level"),
)


def _link(reader: TomlTable) -> Link:
    reader.only(("name", "size", "bandwidth_gb_per_s", "latency_us", "source"))
    size = reader.whole("size")
    bandwidth, latency = reader.positive("bandwidth_gb_per_s") * 1e9, reader.positive("latency_us") * 1e-6
    return Link(reader.text("name"), size, bandwidth, latency)
