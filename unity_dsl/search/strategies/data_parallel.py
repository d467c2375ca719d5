"""Strategy `data_parallel`: the batch divided over all devices, every weight on each of them."""

from __future__ import annotations

from collections.abc import Collection

from ...graph.graph import Graph, Model, Node, Value
from ...graph.layout import Invariant, Mesh, invariant
from ...graph.layout_typing import Along, Configuration, Uniformly, type_operator
from ...index.library import Library
from ...syntax.diagnostic import fail
from ..choices.restriction import Restriction, node_path, places

WHOLE = Uniformly(Invariant())
"""The role of an operator along mesh axes that do not divide it."""


def data_parallel(model: Model, mesh: Mesh, library: Library, axes: Collection[int] | None = None) -> Restriction:
    """Weights Invariant, and every operator along the batch axis of the inputs, where it has it.

    The batch is divided over the mesh `axes`, by default all; devices along others compute the same. Raises E309 where
    the devices do not divide it.
    """
    found = _Batch(mesh, library, batch_size(model), range(len(mesh.axes)) if axes is None else axes)
    found.graph(model.graph, "", {})
    storage = {place.path: invariant(mesh) for place in places(model) if place.stored}
    return Restriction(found.configurations, storage)


def batch_size(model: Model) -> int:
    """The size of the batch: the first dimension of the first input, 0 without one. In every input whose first
    dimension has this length, it is the batch.
    """
    shapes = [source.value.shape for source in model.graph.inputs if source.value.shape]
    return shapes[0][0] if shapes else 0


class _Batch:
    """Propagates the batch through a graph: for each value, the dimension whose major factor is the batch."""

    def __init__(self, mesh: Mesh, library: Library, batch: int, axes: Collection[int]) -> None:
        self.mesh = mesh
        self.library = library
        self.batch = batch
        self.axes = axes
        self.configurations: dict[str, Configuration] = {}

    def graph(self, graph: Graph, prefix: str, outside: dict[str, int]) -> dict[str, int]:
        dims = dict(outside)
        for source in graph.inputs:
            if source.value.shape[:1] == (self.batch,):
                dims[source.value.name] = 0
        for step in graph.steps:
            if isinstance(step, Node):
                self._node(step, prefix, dims)
                continue
            entered = {v.name: dims[given.name] for given, v in _pairs(step.initial, step.entry) if given.name in dims}
            captured = {value.name: dims[value.name] for value in step.captured if value.name in dims}
            for series in step.sliced:
                batch = dims.get(series.whole.name, series.dim)
                if batch != series.dim:
                    entered[series.part.name] = batch - (batch > series.dim)
            inside = self.graph(step.body, f"{prefix}{step.name}.", captured | entered)
            for left, result in _pairs(step.exit, step.results):
                if left.name in inside:
                    dims[result.name] = inside[left.name]
            for series in step.stacked:
                if series.part.name in inside:
                    dims[series.whole.name] = inside[series.part.name] + (inside[series.part.name] >= series.dim)
        return dims

    def _node(self, node: Node, prefix: str, dims: dict[str, int]) -> None:
        instance = node.instance
        for value, operand in zip(node.arguments, instance.inputs, strict=True):
            if value.name not in dims or not operand.dims[dims[value.name]]:
                continue
            axis = operand.dims[dims[value.name]][0]
            roles = (Along(axis) if number in self.axes else WHOLE for number in range(len(self.mesh.axes)))
            configuration = tuple(roles)
            typed = type_operator(instance, configuration, self.mesh, self.library)
            if isinstance(typed, str):
                if instance.sizes[axis] % self.mesh.degree(self.axes):
                    raise fail("E309", f"data_parallel does not fit this model: {typed}", node.span)
                continue
            self.configurations[node_path(prefix, node)] = configuration
            for result, output in zip(node.results, instance.outputs, strict=True):
                for dim, factors in enumerate(output.dims):
                    if factors[:1] == (axis,):
                        dims[result.name] = dim
            return


def _pairs(first: tuple[Value, ...], second: tuple[Value, ...]) -> list[tuple[Value, Value]]:
    return list(zip(first, second, strict=True))
