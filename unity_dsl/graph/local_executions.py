"""The runs of a plan's operators on one device: the tensors that each builds and saves, cached for equal operators."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..index.equations.instance import Key
from ..index.library import Library
from ..index.lowering.execution import Execution
from ..index.lowering.local_tensor import Shape
from ..index.lowering.operand_reuse import Reuse
from .graph import DTYPE_BYTES
from .layout import Mesh
from .layout_typing import Configuration, TypedOperator
from .local_lowering import local_execution
from .plan import PlannedNode
from .precision import arithmetic


def execution_of(
    planned: PlannedNode, strides: tuple[Shape | None, ...], mesh: Mesh, library: Library, dtype: str | None = None
) -> Execution:
    """The run of a node's operator on one device of a mesh, on operands of these strides, in a float type."""
    node, typed, native = planned.node, planned.typed, planned.native
    width = DTYPE_BYTES[dtype or arithmetic(node, native, library)]
    configuration = typed.configuration
    of_operator = node.instance.identity, node.gradients, native, configuration, typed.reuse
    return _execution(_Case(*of_operator, width, strides, mesh, library, typed))


@dataclass(frozen=True)
class _Case:
    """What a run depends on; `typed` follows from the rest."""

    identity: Key
    needs: tuple[bool, ...]
    native: bool
    configuration: Configuration
    reuse: Reuse
    width: int
    strides: tuple[Shape | None, ...]
    mesh: Mesh
    library: Library
    typed: TypedOperator = field(compare=False)


@lru_cache(maxsize=4096)
def _execution(case: _Case) -> Execution:
    typed = replace(case.typed, native=case.native)
    return local_execution(case.identity.instance, typed, case.mesh, case.library, case.needs, case.width, case.strides)
