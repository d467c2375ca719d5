"""Hand-written tensor parallelism: which operators divide features, heads, experts or a vocabulary.

Two consecutive products with weights are paired. The first is column-parallel: its outputs are divided. The next is
row-parallel: its inputs are divided, and its result is a sum over the devices (Shoeybi et al., Megatron-LM, 2019).
Operators between them, on attention heads and elements, are divided as their operands are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...graph.graph import Graph, Node
from ...graph.layout import Mesh
from ...graph.layout_typing import Along, type_operator
from ...index.equations.instance import Operand
from ...index.library import Library
from ..choices.restriction import node_path, stored_values

LEFT_OUT = 0.1
"""The fraction of the elements of matrices that may stay whole, such as the few outputs that choose experts."""


def tensor_roles(
    graph: Graph, mesh: Mesh, library: Library, rows: bool = True, without: Collection[str] = ()
) -> dict[str, Along] | None:
    """The roles of operators of a model's graph along the axes of a mesh, by path. None if the devices divide too few
    of the matrices of its repeats (or of the whole model, if it has no repeats).

    If `rows` is false, every product with a weight is column-parallel; operators with names in `without` have no role.
    An axis of a product is given up if a later operator cannot be divided accordingly.
    """
    given_up: set[tuple[str, str]] = set()
    while True:
        found = _Follower(mesh, library, rows, without, given_up)
        found.graph(graph, "", set(), {})
        if found.failed is None:
            break
        given_up.add(found.failed)
    every = found.repeated or found.matrices
    whole = sum(every.get(path, 0) for path in found.whole)
    return found.roles if found.roles and whole <= LEFT_OUT * sum(every.values()) else None


@dataclass(frozen=True)
class _Divided:
    """A divided dimension of a value, and the operator and axis that divided it."""

    dim: int
    source: tuple[str, str]


class _Follower:
    """Propagates divided features through a graph until an operator cannot be divided. `failed` is then the operator
    and axis where the division started.

    By the path of the product, `matrices` are the numbers of elements of the weights, and `repeated` those within
    repeats. `whole` are the paths of products that are not divided.
    """

    def __init__(
        self,
        mesh: Mesh,
        library: Library,
        rows: bool,
        without: Collection[str],
        given_up: Collection[tuple[str, str]],
    ) -> None:
        self.mesh = mesh
        self.library = library
        self.rows = rows
        self.without = without
        self.given_up = given_up
        self.roles: dict[str, Along] = {}
        self.matrices: dict[str, int] = {}
        self.repeated: dict[str, int] = {}
        self.whole: set[str] = set()
        self.failed: tuple[str, str] | None = None

    def graph(self, graph: Graph, prefix: str, weights: set[str], divided: dict[str, _Divided]) -> dict[str, _Divided]:
        """The divided values of a graph; `weights` and `divided` are those from outside."""
        weights = weights | {value.name for value in stored_values(graph)}
        for step in graph.steps:
            if self.failed is not None:
                break
            if isinstance(step, Node):
                self._node(step, prefix, weights, divided)
                continue
            captured = {value.name: divided[value.name] for value in step.captured if value.name in divided}
            inside = self.graph(step.body, f"{prefix}{step.name}.", weights, captured)
            for series in step.stacked:
                if (found := inside.get(series.part.name)) is not None:
                    dim = found.dim + (found.dim >= series.dim)
                    divided[series.whole.name] = replace(found, dim=dim)
        return divided

    def _node(self, node: Node, prefix: str, weights: set[str], divided: dict[str, _Divided]) -> None:
        if node.arguments and all(value.name in weights for value in node.arguments):
            weights.update(value.name for value in node.results)
            return
        path = node_path(prefix, node)
        weight, follows = self._weight(node, weights), self._divided_axis(node, divided)
        if weight is not None:
            self.matrices[path] = prod(node.instance.shape(weight))
            if prefix:
                self.repeated[path] = self.matrices[path]
        if follows is not None and (weight is None or self._continues(node, weight, follows[0])):
            axis, source = follows
            if self._may(node, axis):
                self._divide(node, path, axis, source, divided)
            else:
                self.failed = source
            return
        if weight is None:
            return
        for axis in self._columns(node, weight):
            if (path, axis) not in self.given_up and self._may(node, axis):
                self._divide(node, path, axis, (path, axis), divided)
                return
        self.whole.add(path)

    def _continues(self, node: Node, weight: Operand, axis: str) -> bool:
        """Whether a product keeps the divided axis of its operand, which its weight must have as well."""
        return axis in weight.axes and (self.rows or axis in _outputs(node))

    def _divide(self, node: Node, path: str, axis: str, source: tuple[str, str], divided: dict[str, _Divided]) -> None:
        self.roles[path] = Along(axis)
        for value, output in zip(node.results, node.instance.outputs, strict=True):
            for dim, factors in enumerate(output.dims):
                if factors[:1] == (axis,):
                    divided[value.name] = _Divided(dim, source)

    def _weight(self, node: Node, weights: set[str]) -> Operand | None:
        """The matrix that an operator multiplies by, or looks rows up in."""
        if len(node.arguments) < 2 or node.instance.name in self.without:
            return None
        for value, operand in zip(node.arguments, node.instance.inputs, strict=True):
            summed = set(operand.axes) - _outputs(node)
            if value.name in weights and len(operand.dims) > 1 and summed and value.integer_range is None:
                return operand
        return None

    def _divided_axis(self, node: Node, divided: dict[str, _Divided]) -> tuple[str, tuple[str, str]] | None:
        for value, operand in zip(node.arguments, node.instance.inputs, strict=True):
            found = divided.get(value.name)
            if found is not None and operand.dims[found.dim]:
                return operand.dims[found.dim][0], found.source
        return None

    def _columns(self, node: Node, weight: Operand) -> Sequence[str]:
        """Axes along which a product's outputs may be divided; axes that every operand has, such as experts, come
        first. For a table, its rows: the vocabulary.
        """
        others = [operand for operand in node.instance.inputs if operand.name != weight.name]
        if all(operand.integer_range is not None for operand in others):
            return weight.dims[0][:1]
        leading = [dim[0] for output in node.instance.outputs for dim in output.dims if dim]
        made = [axis for axis in leading if axis in weight.axes]
        return sorted(made, key=lambda axis: not all(axis in operand.axes for operand in others))

    def _may(self, node: Node, axis: str) -> bool:
        typed = type_operator(node.instance, (Along(axis),) * len(self.mesh.axes), self.mesh, self.library)
        return not isinstance(typed, str)


def _outputs(node: Node) -> set[str]:
    return {axis for output in node.instance.outputs for axis in output.axes}
