"""E-nodes: operators over classes of equal values."""

from __future__ import annotations

from dataclasses import dataclass

from ...graph.graph import Node
from ...graph.plan import AppliedRule


@dataclass(frozen=True)
class Enode:
    """An operator, and the rules that made it, in the order in which they were applied: none for the graph's own."""

    node: Node
    applied: tuple[AppliedRule, ...] = ()
