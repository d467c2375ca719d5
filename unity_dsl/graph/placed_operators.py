"""The role of a mesh axis along which only the devices of one coordinate compute an operator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Placed:
    """Only the devices with this coordinate compute the operator. The operands `there`, by position, are At it."""

    coordinate: int
    there: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"@{self.coordinate}"
