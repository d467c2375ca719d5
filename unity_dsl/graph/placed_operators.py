"""The role of a mesh axis of which the devices of one coordinate compute an operator alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Placed:
    """The devices with this coordinate alone compute the operator, of which these operands (by position) are `there`:
    At the coordinate.
    """

    coordinate: int
    there: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"@{self.coordinate}"
