"""The runs of a plan's operators on one device: what each builds and keeps, found once for operators that are alike."""

from __future__ import annotations

from dataclasses import replace

from ..index.library import Library
from ..index.lowering.execution import Execution
from ..index.lowering.local_tensor import Shape
from .graph import DTYPE_BYTES
from .layout import Mesh
from .local_lowering import local_execution
from .plan import PlannedNode
from .precision import arithmetic


class LocalExecutions:
    """Executions of operators on a mesh, each found when first asked for."""

    def __init__(self, mesh: Mesh, library: Library) -> None:
        self.mesh, self.library = mesh, library
        self._found: dict[object, Execution] = {}

    def of(self, planned: PlannedNode, strides: tuple[Shape | None, ...]) -> Execution:
        """The run of a node's operator on one device, on operands of these strides."""
        node, typed = planned.node, replace(planned.typed, native=planned.native)
        width = DTYPE_BYTES[arithmetic(node, planned.native, self.library)]
        key = (node.instance.identity, node.gradients, typed.native, typed.configuration, width, strides)
        if key not in self._found:
            self._found[key] = local_execution(
                node.instance, typed, self.mesh, self.library, node.gradients, width, strides
            )
        return self._found[key]
