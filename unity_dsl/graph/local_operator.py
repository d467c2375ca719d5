"""One device's part of an operator: the lengths of its axes there, and how that part is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..index.lowering.division import InnerCollective
from ..index.lowering.operand_reuse import NO_REUSE, Reuse
from .halo import HaloWindow


@dataclass(frozen=True)
class LocalOperator:
    """One device's part of an operator, as far as it depends only on which axes are divided.

    `local_sizes` gives each axis's length there, `divided` the mesh axes that divide it, major first. `native` says
    that the declaration's torch call on local slices computes what the equations do there; otherwise the equations are
    emitted, with the collectives of `inner`. `cuts` names the op that cuts the operator's own axis, per mesh axis.
    `reuse` says which results take the memory of operands, if a plan allows it.
    """

    local_sizes: Mapping[str, int]
    divided: Mapping[str, tuple[int, ...]]
    inner: tuple[InnerCollective, ...] = ()
    native: bool = True
    windows: tuple[HaloWindow, ...] = ()
    cuts: Mapping[int, str] = field(default_factory=dict)
    reuse: Reuse = NO_REUSE
