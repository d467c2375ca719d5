"""E-nodes: operators over classes of equal values."""

from __future__ import annotations

from dataclasses import dataclass

from ...graph.graph import Node
from ...graph.plan import AppliedRule


@dataclass(frozen=True)
class Enode:
    """An operator, and the rules that made it in order of application; the graph's own operators have none."""

    node: Node
    applied: tuple[AppliedRule, ...] = ()
