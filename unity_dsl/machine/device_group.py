"""The levels of a machine that the devices of a group of mesh axes cross."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ..graph.layout import Mesh
from .machine import Machine


@dataclass(frozen=True, slots=True)
class Crossing:
    """A level that a group of devices crosses.

    Within a unit of the level above (a node, for level 0), the group spans `units` units of this level, with `members`
    devices in each; in the whole machine it spans `all_units`. A device reaches `peers` other devices of the group
    through this level. `rate` is the bytes per second that a device sends while all devices of its unit send.
    """

    level: int
    units: int
    members: int
    all_units: int
    peers: int
    rate: float
    latency: float

    @property
    def unit_rate(self) -> float:
        """Bytes per second that the group's devices in one unit send together."""
        return self.members * self.rate


@lru_cache(maxsize=4096)
def crossings(axes: tuple[int, ...], mesh: Mesh, machine: Machine) -> tuple[Crossing, ...]:
    """The levels that the groups along mesh axes cross, the fastest first.

    They depend only on the devices of the groups, not on their division into axes. All groups communicate at the same
    time, so all devices of a unit share its bandwidth. If a unit is no multiple of the distance between members, it has
    as many members as fit.
    """
    runs = _runs(axes, mesh)
    size = prod(degree for _, degree in runs)
    inside = [_inside(runs, machine.devices_below(level)) for level in range(len(machine.levels))]
    found = []
    for level, (members, above) in enumerate(zip(inside, [*inside[1:], size], strict=True)):
        if above > members:
            link, sharers = machine.levels[level], min(machine.devices_below(level), mesh.size)
            rate = min(link.bandwidth / sharers, link.device_bandwidth)
            units, all_units = -(-above // members), -(-size // members)
            found.append(Crossing(level, units, members, all_units, above - members, rate, link.latency))
    return tuple(found)


def _runs(axes: tuple[int, ...], mesh: Mesh) -> list[tuple[int, int]]:
    """The (stride, length) rows that a group consists of, in devices; adjacent axes form one row. Devices are numbered
    along the last axis first.
    """
    runs: list[tuple[int, int]] = []
    stride = 1
    for axis in reversed(range(len(mesh.axes))):
        degree = mesh.axes[axis].degree
        if axis in axes:
            if runs and runs[-1][0] * runs[-1][1] == stride:
                runs[-1] = runs[-1][0], runs[-1][1] * degree
            else:
                runs.append((stride, degree))
        stride *= degree
    return runs


def _inside(runs: list[tuple[int, int]], unit: int) -> int:
    """The number of a group's devices within a unit of `unit` devices."""
    return prod(min(degree, max(unit // stride, 1)) for stride, degree in runs)
