"""Strategies by name: each restricts the space that the search minimises over; `random` draws from it instead."""

from __future__ import annotations

from collections.abc import Callable

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...index.library import Library
from ..choices.restriction import Restriction
from .auto import auto
from .data_parallel import data_parallel
from .random import random
from .single import single

__all__ = ["AUTO", "RANDOM", "STRATEGIES", "Strategy", "random"]

Strategy = Callable[[Model, Mesh, Library], Restriction]

AUTO = "auto"
"""The strategy that searches the whole space: of the others' plans nothing says that they are the cheapest."""

STRATEGIES: dict[str, Strategy] = {AUTO: auto, "data_parallel": data_parallel, "single": single}

RANDOM = "random"
"""The name of the strategy that draws its plan: `random`, or `random:7` with a seed."""
