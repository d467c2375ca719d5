"""The proved configurations of operators on meshes, found once for problems with different prices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, product

from ...graph.graph import Node
from ...graph.layout import Mesh
from ...graph.layout_typing import Role
from ...graph.placed_operators import Placed
from ...graph.typed_configurations import Proved, ProvedRoles, Theorems, TypedConfigurations
from ...index.library import Library
from .axis_choices import role_number


@dataclass(frozen=True)
class Around:
    """Configurations of an operator that differ from one of the `chosen` along at most `reach` mesh axes. `chosen` are
    rows of `AxisChoices`.
    """

    chosen: frozenset[tuple[int, ...]]
    reach: int = 1


OperatorKey = tuple[Hashable, ...]
"""An operator, and which of its operands need a gradient or are stored."""


def operator_key(node: Node, weights: Sequence[bool]) -> OperatorKey:
    """All that the configurations of an operator on a mesh depend on."""
    return node.instance.identity, node.gradients, tuple(weights)


@dataclass(frozen=True)
class ProvedConfigurations:
    """What the theorems prove about the operators of a library, by operator and mesh."""

    library: Library
    theorems: Theorems
    _proved: dict[OperatorKey, Proved] = field(default_factory=dict)
    _roles: dict[tuple[OperatorKey, Mesh], ProvedRoles] = field(default_factory=dict)
    _typed: dict[tuple[OperatorKey, Mesh, Hashable], TypedConfigurations | None] = field(default_factory=dict)

    def of(self, node: Node, weights: Sequence[bool], mesh: Mesh, placed: Mapping[int, Placed]) -> TypedConfigurations:
        """Every configuration, the all-Invariant one first. With `placed`, those in which the operator is placed along
        axes.
        """
        key = operator_key(node, weights), mesh, tuple(placed.items())
        if (found := self._typed.get(key)) is None:
            roles = self._roles_of(node, weights, mesh)
            found = self._typed[key] = roles.typed_at(placed) if placed else roles.typed()
        return found

    def near(self, node: Node, weights: Sequence[bool], mesh: Mesh, around: Around) -> TypedConfigurations | None:
        """The all-Invariant configuration and those `around` the given ones; None if there are none around."""
        key = operator_key(node, weights), mesh, around
        if key not in self._typed:
            roles = self._roles_of(node, weights, mesh)
            whole = (0,) * len(roles.by_axis)
            rows = _neighbours(roles.by_axis, around)
            typed = roles.typed(rows if whole in rows else [whole, *rows])
            self._typed[key] = typed if whole in rows or len(typed) > 1 else None
        return self._typed[key]

    def _roles_of(self, node: Node, weights: Sequence[bool], mesh: Mesh) -> ProvedRoles:
        key = operator_key(node, weights)
        if (key, mesh) not in self._roles:
            known, gradients = self._proved.setdefault(key, {}), node.gradients
            roles = ProvedRoles(node.instance, mesh, self.library, gradients, weights, self.theorems, known)
            self._roles[key, mesh] = roles
        return self._roles[key, mesh]


@lru_cache(maxsize=2)
def proved_of(library: Library, theorems: Theorems) -> ProvedConfigurations:
    """One shared object for the problems of a search, which differ only in prices."""
    return ProvedConfigurations(library, theorems)


def _neighbours(by_axis: Sequence[Sequence[Role]], around: Around) -> list[tuple[int, ...]]:
    """Indices of the neighbours' roles on each axis, sorted as in the product of the roles."""
    places = [{role_number(role): place for place, role in enumerate(roles)} for roles in by_axis]
    found: set[tuple[int, ...]] = set()
    for one in around.chosen:
        at = [place.get(number) for place, number in zip(places, one, strict=True)]
        for free in combinations(range(len(by_axis)), min(around.reach, len(by_axis))):
            found.update(
                product(
                    *(
                        range(len(roles)) if axis in free else () if place is None else (place,)
                        for axis, (roles, place) in enumerate(zip(by_axis, at, strict=True))
                    )
                )
            )
    return sorted(found)
