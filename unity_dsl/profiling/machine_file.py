"""Writes the text of a machine file from measurements."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..machine.measured_collectives import COLLECTIVES, nearest_line
from ..machine.measured_curves import Curve, ProductGrid
from ..machine.measured_operators import CLASS, OPERATORS, OPTIMIZER, PRODUCTS, WorkCurve
from .machine_profile import MachineProfile

Entries = Mapping[str, Any]


def machine_file(profile: MachineProfile, name: str, memory: float, header: Sequence[str]) -> str:
    """The text of a machine file with one level. `memory` is the bytes of one rank, `header` the lines of the comment
    at its top.
    """
    return "\n".join([*(f"# {line}" for line in header), *_lines(profile, name, memory)]) + "\n"


def _lines(profile: MachineProfile, name: str, memory: float) -> Iterator[str]:
    yield from _entries(
        {
            "name": name,
            "device": profile.device,
            "memory_gb": _digits(memory / 1e9),
            "memory_bandwidth_gb_per_s": _digits(profile.bandwidth / 1e9),
            "launch_latency_us": _digits(profile.launch * 1e6),
            "source": "measured by `unityc profile`",
        }
    )
    yield from _section("[peak_tflops]", {dtype: _digits(rate / 1e12) for dtype, rate in profile.peak.items()})
    yield from _section("[efficiency]", {"compute": 1.0, "memory": 1.0})
    yield from _section("[[level]]", _level(profile))
    if profile.operators.update is not None:
        yield from _section(f"[{OPTIMIZER}]", _curve("bytes", profile.operators.update))
    for (kind, devices), curve in profile.collectives.curves.items():
        yield from _section(f"[[{COLLECTIVES}]]", {"kind": kind, "devices": devices, **_curve("bytes", curve)})
    for key, measured in profile.operators.curves.items():
        head = {"class" if key.name.startswith(CLASS) else "name": key.name.removeprefix(CLASS)}
        rest = {"dtype": key.dtype, "direction": key.direction, **_work_curve(measured)}
        yield from _section(f"[[{OPERATORS}]]", {**head, **rest})
    for found, grid in profile.operators.grids.items():
        yield from product_lines(found.kind, found.dtype, found.direction, found.batched, grid)


def product_lines(kind: str, dtype: str, direction: str, batched: bool, grid: ProductGrid) -> Iterator[str]:
    """The lines of a section for a grid of products."""
    of: Entries = {"class": kind, "dtype": dtype, "direction": direction, "batched": batched}
    launch = {"launch_us": _microseconds(grid.launch)} if grid.launch else {}
    sides = {"rows": _whole(grid.rows), "columns": _whole(grid.columns), "inner": _whole(grid.inner)}
    yield from _section(f"[[{PRODUCTS}]]", {**of, **launch, **sides})
    yield from _planes("time_us", (grid.seconds * 1e6).tolist())


def _level(profile: MachineProfile) -> Entries:
    """The link, from the all-gathers of the largest group. A single rank has no link, and its figures are not used."""
    lines = {
        degree: nearest_line(curve)
        for (kind, degree), curve in profile.collectives.curves.items()
        if kind == "all_gather"
    }
    latency, per_byte = lines[max(lines)] if lines else (profile.launch, 1 / profile.bandwidth)
    hops = max(lines, default=2) - 1
    bandwidth = hops / max(per_byte, 1e-15)
    return {
        "name": "rank",
        "size": profile.ranks,
        "bandwidth_gb_per_s": _digits(bandwidth / 1e9),
        "latency_us": _digits(max(latency, 1e-7) / hops * 1e6),
    }


def _work_curve(measured: WorkCurve) -> Entries:
    return _curve(measured.over, measured.curve)


def _curve(over: str, curve: Curve) -> Entries:
    return {over: _whole(curve.amounts), "time_us": [_microseconds(seconds) for seconds in curve.seconds]}


def _section(header: str, entries: Entries) -> Iterator[str]:
    yield from ("", header, *_entries(entries))


def _entries(entries: Entries) -> Iterator[str]:
    for key, value in entries.items():
        yield f"{key} = {json.dumps(value)}"


def _planes(key: str, values: Sequence[Sequence[Sequence[float]]]) -> Iterator[str]:
    """Nested lists, one row on each line."""
    yield f"{key} = ["
    for plane in values:
        yield "  ["
        yield from (f"    {json.dumps([_rounded(value) for value in row])}," for row in plane)
        yield "  ],"
    yield "]"


def _microseconds(seconds: float) -> float:
    return _rounded(seconds * 1e6)


def _rounded(value: float) -> float:
    """The value without its last bits, which are rounding errors of the change of units."""
    return float(f"{value:.10g}")


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _whole(values: Sequence[float]) -> list[int | float]:
    return [int(value) if value == int(value) else value for value in values]
