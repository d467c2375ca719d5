"""Prices of the memory that choices hold, for a search that is limited by memory."""

from __future__ import annotations

from typing import Protocol

from ...graph.graph import Node, Value
from ...graph.layout import Mesh
from ..choices.layout_space import Space
from ..choices.operator_options import Options
from ..cost_network.bucket_elimination import Table


class HeldPrice(Protocol):
    """Prices bytes in seconds. `prefix` precedes names in paths."""

    def of_operator(self, node: Node, prefix: str, options: Options, mesh: Mesh) -> Table:
        """The price of what an operator holds, by configuration."""

    def of_stored(self, value: Value) -> float:
        """The price of each byte of a weight or buffer where it is stored."""

    def with_copies(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """Prices of conversions, plus the price of converted copies that are kept. Shape [layouts, layouts]."""

    def with_gathers(self, seconds: Table, value: Value, prefix: str, space: Space) -> Table:
        """The same for a weight that one operator reads."""
