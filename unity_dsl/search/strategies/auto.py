"""Strategy `auto`: the cheapest plan of the whole space."""

from __future__ import annotations

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...index.library import Library
from ..choices.restriction import Restriction


def auto(model: Model, mesh: Mesh, library: Library) -> Restriction:
    """The cheapest of all plans."""
    return Restriction()
