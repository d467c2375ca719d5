"""Chooses the products that are written with padded columns: those that the machine's prices assume padded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from ..graph.layout import Mesh
from ..graph.layout_typing import Configuration
from ..graph.plan import PlannedNode
from ..graph.precision import priced_type
from ..index.library import Library
from ..machine.machine import Machine
from ..machine.measured_price import TOGETHER
from ..machine.operator_price import is_padded


@dataclass(frozen=True)
class ColumnPadding:
    """The choice by a machine's prices. It is remembered by path and configuration, so that the text of a model is the
    same at other sizes.
    """

    machine: Machine
    noted: dict[tuple[str, Configuration], bool] = field(default_factory=dict)

    def columns(self, path: str, step: PlannedNode, mesh: Mesh, library: Library) -> tuple[int, int] | None:
        """The columns of the operator's result, and how many more it computes; None if it is not padded."""
        key, instance = (path, step.typed.configuration), step.node.instance
        if key not in self.noted:
            typed, dtype = replace(step.typed, native=step.native), priced_type(step.node, step.native, library)
            self.noted[key] = is_padded(instance, typed, dtype, mesh, self.machine, library)
        if not self.noted[key]:
            return None
        columns = prod(step.typed.local_sizes[axis] for axis in instance.outputs[0].dims[-1])
        return columns, -columns % TOGETHER
