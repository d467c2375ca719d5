"""Machine files: the kinds of devices, and the links between devices by level, fastest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, prod
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ..cached_hash import cached_hash
from ..graph.plan import Exposure
from ..graph.precision import FULL, TF32
from ..resources import folder
from ..syntax.diagnostic import fail, suggest
from ..syntax.read import read_source
from ..syntax.span import Source
from ..syntax.toml_text import toml_entries
from .measured_collectives import COLLECTIVES, MeasuredCollectives, read_measured_collectives
from .measured_operators import (
    OPERATORS,
    OPTIMIZER,
    PRODUCTS,
    UNALIGNED,
    MeasuredOperators,
    read_measured_operators,
)
from .nccl_settings import LIBRARY, TABLE, NcclSettings, read_nccl_settings
from .toml_table import TomlTable

Bytes = TypeVar("Bytes", float, npt.NDArray[np.float64])
FLOAT_TYPES = ("f64", "f32", "bf16", "f16")
FACTOR_TYPES = (*FLOAT_TYPES, TF32)
"""Types of the factors of matrix products. Without a peak for TF32 in a file, its devices multiply in float32."""


@dataclass(frozen=True)
class Link:
    """One level of the interconnect: it joins `size` units of the level below (devices, at level 0).

    `bandwidth` is what one such unit sends, bytes per second in one direction. The unit's devices that cross the level
    at the same time share it, and each of them sends at most `device_bandwidth`: a node has several network cards, and
    a device uses its own. `latency` is that of one hop, seconds. `network` says that the units are joined by network
    cards: they are nodes, or racks and pods of nodes.
    """

    name: str
    size: int
    bandwidth: float
    latency: float
    device_bandwidth: float = inf
    network: bool = False

    def faster(self, times: float) -> Link:
        """The link at `times` the speed."""
        bandwidth, device = self.bandwidth * times, self.device_bandwidth * times
        return replace(self, bandwidth=bandwidth, device_bandwidth=device, latency=self.latency / times)


@dataclass(frozen=True)
class DeviceKind:
    """One kind of device of a machine: `count` of them, numbered one after the other. Units as in `Machine`."""

    name: str
    count: int
    peak: Mapping[str, float] = field(hash=False)
    memory_bandwidth: float
    memory_bytes: float
    launch_seconds: float
    compute_efficiency: float
    memory_efficiency: float


@dataclass(frozen=True)
class Collectives:
    """Properties of communication besides the levels. `measured` are measured collectives. `nccl` are settings of NCCL,
    if it runs the collectives. `overlap_slowdown` is the fraction of their speed that kernels lose while a collective
    runs on their device. `host` is the link to the host, with the bandwidth of one device, in each direction, when all
    devices use it at once.
    """

    measured: MeasuredCollectives = field(default=MeasuredCollectives(), hash=False)
    nccl: NcclSettings | None = None
    overlap_slowdown: float = 0.0
    host: Link | None = None


@dataclass(frozen=True)
class Counting:
    """The fractions of overlappable work that prices count, and `origin`, the machine that counts everything, if that
    is another one.
    """

    exposure: Exposure = field(default_factory=Exposure)
    origin: Machine | None = field(default=None, compare=False, repr=False)


@cached_hash
@dataclass(frozen=True)
class Machine:
    """A machine. `peak` is flops per second by FACTOR_TYPES, bandwidths are bytes per second, times are seconds.

    `compute_efficiency` and `memory_efficiency` are the fractions of peak and of memory bandwidth that kernels reach.
    `memory_bytes` are those that a plan may use. Measured times of operators (`measured`) and of `collectives` take
    precedence over these and over the levels. Other collectives are priced by NCCL's cost model if `collectives` has
    its settings, else by the levels alone. `kinds` lists the kinds of devices in the order of their numbers, if there
    are several. All devices do the same work, so the worst value of every figure applies to all of them. Prices count
    the exposed fraction of overlappable work, as `counting` says.
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
    measured: MeasuredOperators = field(default=MeasuredOperators(), hash=False)
    collectives: Collectives = field(default_factory=Collectives)
    kinds: tuple[DeviceKind, ...] = ()
    counting: Counting = field(default_factory=Counting)

    @property
    def exposure(self) -> Exposure:
        """The fractions of overlappable work that prices count."""
        return self.counting.exposure

    @property
    def origin(self) -> Machine:
        """The machine whose prices count everything, from which `exposing` made this one."""
        return self.counting.origin or self

    @property
    def exposed_launch(self) -> float:
        """Exposed seconds of one launch."""
        return self.launch_seconds * self.exposure.launches

    def exposing(self, exposure: Exposure) -> Machine:
        """The machine with prices that count these fractions of overlappable work. Kernels and collectives take less
        time as far as the device waits for launches, unless their measured times include launches.
        """
        return _exposing(self.origin, exposure)

    @property
    def launches_apart(self) -> bool:
        """Whether measured times are of kernels alone, as on a GPU, whose host launches them ahead."""
        return self.device == "cuda"

    @property
    def devices(self) -> int:
        return prod(level.size for level in self.levels)

    def holding(self, memory: int | None) -> Machine:
        """The machine with another memory limit, bytes on each device, if one is given."""
        return self if memory is None else replace(self.origin, memory_bytes=memory).exposing(self.exposure)

    def traffic_seconds(self, count: Bytes) -> Bytes:
        """Seconds that kernels take to read and write `count` bytes of device memory, without launches."""
        return count / (self.memory_bandwidth * self.memory_efficiency)

    def devices_below(self, level: int) -> int:
        """Devices that share one unit's link of a level: 1 at level 0, a node's devices where nodes are joined."""
        return prod(link.size for link in self.levels[:level])

    @property
    def node_devices(self) -> int:
        """Devices of a node, the unit that network cards join; all devices of a machine without a network."""
        return self.devices_below(next((i for i, link in enumerate(self.levels) if link.network), len(self.levels)))


@lru_cache(maxsize=256)
def _exposing(full: Machine, exposure: Exposure) -> Machine:
    """One object for each exposure of a machine: caches of prices find it by identity, without comparing curves."""
    with_launches = full.measured != MeasuredOperators() and not full.launches_apart
    if with_launches or full.collectives.measured != MeasuredCollectives():
        exposure = replace(exposure, devices=1.0)
    faster = full.exposure.devices / exposure.devices
    if exposure == full.exposure:
        return full
    if faster == 1:
        return replace(full, counting=Counting(exposure, full))
    return replace(
        full,
        peak={dtype: peak * faster for dtype, peak in full.peak.items()},
        memory_bandwidth=full.memory_bandwidth * faster,
        measured=full.measured.faster(faster),
        levels=tuple(link.faster(faster) for link in full.levels),
        counting=Counting(exposure, full),
    )


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
    reader = TomlTable(source, toml_entries(source, "E304"))
    reader.only((*_MACHINE_KEYS, *_DEVICE_KEYS, *_MEASURED_KEYS))
    device = reader.text("device")
    if device not in ("cpu", "cuda"):
        raise reader.fault("device", f"`device` is `cpu` or `cuda`, not `{device}`")
    levels = _links(reader)
    several = "device_kind" in reader
    kinds = _device_kinds(reader, levels, device) if several else (_device_kind(reader, "", 1, device),)
    slowdown = reader.part(SLOWDOWN) if SLOWDOWN in reader else OVERLAP_SLOWDOWN[device]
    return Machine(
        name=reader.text("name"),
        device=device,
        peak={dtype: min(kind.peak[dtype] for kind in kinds) for dtype in FACTOR_TYPES},
        memory_bandwidth=min(kind.memory_bandwidth for kind in kinds),
        memory_bytes=min(kind.memory_bytes for kind in kinds),
        launch_seconds=max(kind.launch_seconds for kind in kinds),
        compute_efficiency=min(kind.compute_efficiency for kind in kinds),
        memory_efficiency=min(kind.memory_efficiency for kind in kinds),
        levels=levels,
        kinds=kinds if len(kinds) > 1 else (),
        measured=read_measured_operators(reader, FACTOR_TYPES).sustained(_sustained(reader)),
        collectives=Collectives(
            read_measured_collectives(reader), read_nccl_settings(reader), slowdown, _host_link(reader, device)
        ),
    )


def _sustained(reader: TomlTable) -> float:
    """The sustained fraction of the speed of measured products, of the slowest kind; 1 unless the file gives it."""
    tables = reader.tables("device_kind") if "device_kind" in reader else [reader]
    rates = [table.table("efficiency") for table in tables]
    return min(rate.fraction(SUSTAINED) if SUSTAINED in rate else 1.0 for rate in rates)


SUSTAINED, SLOWDOWN, RESERVED = "sustained", "overlap_slowdown", "reserved_gb"
OVERLAP_SLOWDOWN = {"cuda": 0.1, "cpu": 0.75}
"""Defaults of the slowdown of kernels by overlapped collectives. Kernels of a GPU share its memory and processors with
those of NCCL: 0.05 to 0.2 is usual. A rank on a CPU has one core, and gloo copies what it sends. 0.75 is the fraction
of the time of an all-reduce for which its thread needs the core: processor time over wall time, relative to that of an
overlapped matrix product, is 0.66 to 0.83 between local ranks.
"""
RESERVED_GB = {"cuda": 4.0, "cpu": 0.0}
"""Defaults of the device memory, GB, that a context, NCCL's buffers and fragmentation take: 3 to 8 GB on a GPU."""
HOST = "host"
_MACHINE_KEYS = ("name", "device", "source", "level", "device_kind", LIBRARY, TABLE, SLOWDOWN, HOST)
_DEVICE_KEYS = ("memory_gb", RESERVED, "memory_bandwidth_gb_per_s", "launch_latency_us", "peak_tflops", "efficiency")
_MEASURED_KEYS = (OPERATORS, PRODUCTS, OPTIMIZER, UNALIGNED, COLLECTIVES)
_LEVEL_KEYS = ("name", "size", "bandwidth_gb_per_s", "device_bandwidth_gb_per_s", "latency_us", "network", "source")


def _device_kind(reader: TomlTable, name: str, count: int, device: str) -> DeviceKind:
    """The figures of one kind of device; they are at the top of a file that describes only one kind."""
    peak = reader.table("peak_tflops")
    peak.only(FACTOR_TYPES)
    given = {dtype: peak.positive(dtype) * 1e12 for dtype in FACTOR_TYPES if dtype != TF32 or dtype in peak}
    efficiency = reader.table("efficiency")
    efficiency.only(("compute", "memory", SUSTAINED))
    return DeviceKind(
        name=name,
        count=count,
        peak={TF32: given[FULL], **given},
        memory_bandwidth=reader.positive("memory_bandwidth_gb_per_s") * 1e9,
        memory_bytes=(reader.positive("memory_gb") - _reserved(reader, device)) * 1e9,
        launch_seconds=reader.positive("launch_latency_us") * 1e-6,
        compute_efficiency=efficiency.fraction("compute"),
        memory_efficiency=efficiency.fraction("memory"),
    )


def _reserved(reader: TomlTable, device: str) -> float:
    """GB of a device's memory that no plan may use."""
    if RESERVED not in reader:
        return RESERVED_GB[device] if reader.positive("memory_gb") > RESERVED_GB[device] else 0.0
    reserved = reader.not_negative(RESERVED)
    if reserved >= reader.positive("memory_gb"):
        raise reader.fault(RESERVED, f"`{RESERVED}`{reader.place} leaves nothing of the memory to a plan")
    return reserved


def _device_kinds(reader: TomlTable, levels: tuple[Link, ...], device: str) -> tuple[DeviceKind, ...]:
    """The kinds of [[device_kind]], which together are all devices; a unit of the fastest level has one kind only."""
    for key in _DEVICE_KEYS:
        if key in reader:
            raise reader.fault(key, f"`{key}` is of every [[device_kind]], so it can't be at the top as well")
    kinds: list[DeviceKind] = []
    for table in reader.tables("device_kind"):
        table.only(("name", "count", "source", *_DEVICE_KEYS))
        kind = _device_kind(table, table.text("name"), table.whole("count"), device)
        if kind.name in (other.name for other in kinds):
            raise table.fault("name", f"there are two [[device_kind]] called `{kind.name}`")
        if kind.count % levels[0].size:
            message = f"{kind.count} devices of `{kind.name}` do not fill units of {levels[0].size}"
            raise table.fault("count", message, f"a unit of level `{levels[0].name}` has one kind of device")
        kinds.append(kind)
    told, devices = sum(kind.count for kind in kinds), prod(level.size for level in levels)
    if told != devices:
        raise reader.fault("device_kind", f"the kinds have {told} devices together, the levels {devices}")
    return tuple(kinds)


def _links(reader: TomlTable) -> tuple[Link, ...]:
    """The levels. If no level is marked as network and there are several, the last one is."""
    tables = reader.tables("level")
    links = [_link(table) for table in tables]
    for number, (table, link) in enumerate(zip(tables, links, strict=True)):
        if link.name in (other.name for other in links[:number]):
            raise table.fault("name", f"there are two [[level]] called `{link.name}`")
    for table, link, below in zip(tables[1:], links[1:], links, strict=False):
        if below.network and not link.network:
            message = f"level `{link.name}` joins units of network level `{below.name}`, so it is one too"
            raise table.fault("network", message)
    if links[0].device_bandwidth != links[0].bandwidth:
        message = "a unit of the first level is a device: `device_bandwidth_gb_per_s` can't differ from its bandwidth"
        raise tables[0].fault("device_bandwidth_gb_per_s", message)
    if len(links) > 1 and not any("network" in table for table in tables):
        links[-1] = replace(links[-1], network=True)
    return tuple(links)


def _host_link(reader: TomlTable, device: str) -> Link | None:
    """The link from a device to its host's memory, shared by the number `devices`; on a CPU, its own memory."""
    if HOST not in reader:
        return Link(HOST, 1, reader.positive("memory_bandwidth_gb_per_s") * 5e8, 0.0) if device == "cpu" else None
    table = reader.table(HOST)
    table.only(("bandwidth_gb_per_s", "latency_us", "devices", "source"))
    devices = table.whole("devices") if "devices" in table else 1
    return Link(
        HOST, devices, table.positive("bandwidth_gb_per_s") * 1e9 / devices, table.positive("latency_us") * 1e-6
    )


def _link(reader: TomlTable) -> Link:
    reader.only(_LEVEL_KEYS)
    name, size = reader.text("name"), reader.whole("size")
    bandwidth, latency = reader.positive("bandwidth_gb_per_s") * 1e9, reader.positive("latency_us") * 1e-6
    of_device, key = bandwidth, "device_bandwidth_gb_per_s"
    if key in reader:
        of_device = reader.positive(key) * 1e9
    if of_device > bandwidth:
        raise reader.fault(key, f"a device can't send more than the {bandwidth / 1e9:g} GB/s of its whole unit")
    return Link(name, size, bandwidth, latency, of_device, reader.flag("network"))
