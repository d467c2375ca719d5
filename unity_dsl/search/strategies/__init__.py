"""Strategies: each restricts the space that the search minimises over, by name."""

from __future__ import annotations

from collections.abc import Callable

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...index.library import Library
from ..restriction import Restriction
from .auto import auto
from .data_parallel import data_parallel
from .single import single

Strategy = Callable[[Model, Mesh, Library], Restriction]

STRATEGIES: dict[str, Strategy] = {"auto": auto, "data_parallel": data_parallel, "single": single}
