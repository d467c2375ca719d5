"""Measured seconds of collectives, by the number of devices; they take precedence over the prices by links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ..graph.collective_steps import StepKind
from .measured_curves import Curve, read_curve
from .toml_table import TomlTable

COLLECTIVES = "collective"
"""The machine file section of measured collectives."""

KINDS = (StepKind.ALL_REDUCE, StepKind.ALL_GATHER, StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL)


@dataclass(frozen=True)
class MeasuredCollectives:
    """Curves over the bytes that each device contributes, by collective and number of devices."""

    curves: Mapping[tuple[StepKind, int], Curve] = field(default_factory=dict, hash=False)

    def line(self, kind: StepKind, degree: int) -> tuple[float, float] | None:
        """Latency, and seconds per byte that each device contributes; None if that was not measured."""
        curve = self.curves.get((kind, degree))
        return None if curve is None else nearest_line(curve)


@lru_cache(maxsize=256)
def nearest_line(curve: Curve) -> tuple[float, float]:
    """The line `latency + per_byte * bytes` that minimises the squared relative errors, neither part below 0."""
    amounts, seconds = np.array(curve.amounts), np.array(curve.seconds)
    columns = np.stack([1 / seconds, amounts / seconds], axis=1)
    (latency, per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(amounts)), rcond=None)
    if latency < 0 or per_byte < 0:
        # The better of the two lines with only one part.
        alone = [(float(part @ np.ones(len(part)) / (part @ part)), part) for part in columns.T]
        errors = [float(((value * part - 1) ** 2).sum()) for value, part in alone]
        return (alone[0][0], 0.0) if errors[0] < errors[1] else (0.0, alone[1][0])
    return float(latency), float(per_byte)


def read_measured_collectives(machine: TomlTable) -> MeasuredCollectives:
    """The collectives of a machine file; empty without the section. Raises E304."""
    found: dict[tuple[StepKind, int], Curve] = {}
    for table in machine.tables(COLLECTIVES) if COLLECTIVES in machine else ():
        table.only(("kind", "devices", "bytes", "time_us"))
        kind = StepKind(table.choice("kind", KINDS))
        key = kind, table.whole("devices")
        if key in found:
            raise table.fault("devices", f"two curves for `{kind}` of {key[1]} devices")
        found[key] = read_curve(table, "bytes")
    return MeasuredCollectives(found)
