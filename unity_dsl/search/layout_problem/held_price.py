"""What a problem is charged for the memory that its choices hold, where that is the limit of the search."""

from __future__ import annotations

from typing import Protocol

from ...graph.graph import Node, Value
from ...graph.layout import Mesh
from ..choices.layout_space import Space
from ..choices.operator_options import Options
from ..cost_network.bucket_elimination import Table


class HeldPrice(Protocol):
    """Seconds that stand for bytes. `prefix` stands before names in paths."""

    def of_operator(self, node: Node, prefix: str, options: Options, mesh: Mesh) -> Table:
        """By configuration."""

    def of_stored(self, value: Value) -> float:
        """Of each byte of a weight or buffer where it is stored."""

    def with_copies(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """Prices of conversions with those of copies that are kept. Shape [layouts, layouts]."""

    def with_gathers(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """The same of a weight that one operator reads."""
