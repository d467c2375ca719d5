"""Strategy `single`: nothing is divided; several devices all do the same work."""

from __future__ import annotations

from ...graph.graph import Graph, Model, Node
from ...graph.layout import Invariant, Mesh, invariant
from ...graph.layout_typing import Configuration, Uniformly
from ...index.library import Library
from ..choices.restriction import Restriction, node_path, places


def single(model: Model, mesh: Mesh, library: Library) -> Restriction:
    """Everything Invariant: every device computes the whole model."""
    whole: Configuration = (Uniformly(Invariant()),) * len(mesh.axes)
    storage = {place.path: invariant(mesh) for place in places(model) if place.stored}
    return Restriction(dict.fromkeys(_nodes(model.graph, ""), whole), storage)


def _nodes(graph: Graph, prefix: str) -> list[str]:
    found = []
    for step in graph.steps:
        found += [node_path(prefix, step)] if isinstance(step, Node) else _nodes(step.body, f"{prefix}{step.name}.")
    return found
