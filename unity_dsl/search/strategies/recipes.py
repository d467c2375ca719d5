"""Common parts of hand-written strategies: data parallelism along some mesh axes, tensor parallelism along others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph.graph import Node
from ...graph.layout import Mesh, Partial
from ...graph.layout_typing import Along, Configuration, Role, TypedOperator, Uniformly, type_operator
from ...index.library import Library
from ...syntax.diagnostic import InputError
from .data_parallel import data_parallel
from .operator_sites import Site
from .strategy import Space


def batch_configurations(space: Space, mesh: Mesh) -> dict[str, Configuration] | None:
    """The configurations of data parallelism, by path; None if these devices do not divide the batch."""
    try:
        return dict(data_parallel(space.model, mesh, space.library).configurations)
    except InputError:
        return None


def tensor_splits(space: Space) -> list[tuple[Mesh, tuple[int, ...]]]:
    """Meshes with their axes of tensor parallelism, whose size is a power of two within a node; smallest first."""
    found = []
    for mesh in space.meshes:
        count = len(mesh.axes)
        for tensor in dict.fromkeys(((), (count - 1,) if count else ())):
            size = mesh.degree(tensor)
            power = size <= space.machine.node_devices and size & (size - 1) == 0
            if power and (tensor or count < 2 or len(space.meshes) == 1):
                found.append((mesh, tensor))
    return sorted(found, key=lambda one: one[0].degree(one[1]))


def allowed_by(
    site: Site,
    typed: TypedOperator,
    batch: Mapping[str, Configuration],
    tensor: Sequence[int],
    roles: Mapping[str, Along],
    harmless: Harmless,
) -> bool:
    """Whether a configuration has the operator's role along the `tensor` mesh axes (a harmless one if it has none), and
    divides the batch along the others.
    """
    along = tuple(role for axis, role in enumerate(typed.configuration) if axis not in tensor)
    if batch.get(site.path, along) != along:
        return False
    wanted = roles.get(site.path)
    if wanted is not None:
        return all(typed.configuration[axis] == wanted for axis in tensor)
    return all(harmless.role(site.node, typed.configuration[axis]) for axis in tensor)


class Harmless:
    """Decides whether a role divides no axis that the operator sums over. All roles of a loss are harmless."""

    def __init__(self, mesh: Mesh, library: Library) -> None:
        self.mesh = mesh
        self.library = library
        self._found: dict[tuple[object, Role], bool] = {}

    def role(self, node: Node, role: Role) -> bool:
        key = node.instance.identity, role
        if key not in self._found:
            self._found[key] = self._find(node, role)
        return self._found[key]

    def _find(self, node: Node, role: Role) -> bool:
        if isinstance(role, Uniformly) or not any(output.dims for output in node.instance.outputs):
            return True
        if not isinstance(role, Along):
            return False
        typed = type_operator(node.instance, (role,) * len(self.mesh.axes), self.mesh, self.library)
        if isinstance(typed, str):
            return False
        return not typed.inner and not any(layout.where(Partial) for layout in typed.results)
