"""Scope of an optimisation problem: all layouts, their orbits under mesh symmetry, or neighbours of a plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from ...graph.layout import Invariant, Layout, Mesh, invariant
from ...graph.layout_typing import Configuration, Role, Uniformly
from .mesh_symmetry import Symmetry, no_symmetry, symmetry_of, without_places


class Scope(Protocol):
    """The layouts and configurations of a problem. Those that `symmetry` turns into each other are one."""

    @property
    def symmetry(self) -> Symmetry: ...

    def holds(self, shape: tuple[int, ...], layout: Layout) -> bool:
        """Whether tensors of a shape may have a layout even if no operator asks for it."""

    def choices(self, path: str, roles: Sequence[Sequence[Role]]) -> Iterable[Configuration]:
        """The configurations of an operator, given the roles that it may have per mesh axis."""

    def key(self, path: str) -> Hashable:
        """What these depend on besides the roles."""


@dataclass(frozen=True)
class Everything:
    """All layouts, or all orbits of them."""

    symmetry: Symmetry

    def holds(self, shape: tuple[int, ...], layout: Layout) -> bool:
        return True

    def choices(self, path: str, roles: Sequence[Sequence[Role]]) -> Iterable[Configuration]:
        return self.symmetry.choices(roles)

    def key(self, path: str) -> Hashable:
        return self.symmetry


@dataclass(frozen=True)
class Selection:
    """Per operator's path some configurations, per shape some layouts: what plans have, or what they may have.

    Operators and tensors that are not named are Invariant.
    """

    mesh: Mesh
    configurations: Mapping[str, frozenset[Configuration]]
    layouts: Mapping[tuple[int, ...], frozenset[Layout]]

    def of(self, path: str) -> frozenset[Configuration]:
        return self.configurations.get(path, frozenset({(Uniformly(Invariant()),) * len(self.mesh.axes)}))

    def united(self, other: Selection) -> Selection:
        paths = {*self.configurations, *other.configurations}
        both = {path: self.of(path) | other.of(path) for path in paths}
        return Selection(self.mesh, both, self.layouts).with_layouts(other.layouts)

    def with_layouts(self, others: Mapping[tuple[int, ...], frozenset[Layout]]) -> Selection:
        nothing: frozenset[Layout] = frozenset()
        shapes = {*self.layouts, *others}
        layouts = {shape: self.layouts.get(shape, nothing) | others.get(shape, nothing) for shape in shapes}
        return Selection(self.mesh, self.configurations, layouts)


class Renamings:
    """What renamings of mesh axes make of a selection, told apart."""

    def __init__(self, selection: Selection) -> None:
        self.symmetry = no_symmetry(selection.mesh)
        self._selection = selection
        self._renamings = symmetry_of(selection.mesh)
        self._whole = frozenset({self._renamings.orbit(invariant(selection.mesh))})
        orbit = self._renamings.orbit
        self._orbits = {shape: self._whole.union(map(orbit, layouts)) for shape, layouts in selection.layouts.items()}

    def holds(self, shape: tuple[int, ...], layout: Layout) -> bool:
        return self._renamings.orbit(layout) in self._orbits.get(shape, self._whole)

    def choices(self, path: str, roles: Sequence[Sequence[Role]]) -> Iterable[Configuration]:
        return _in_order((c for one in self._selection.of(path) for c in self._renamings.placements(one)), roles)

    def key(self, path: str) -> Hashable:
        return "renamings", self._selection.of(path)


class Neighbours:
    """What differs from a selection along one mesh axis at most, told apart."""

    def __init__(self, selection: Selection) -> None:
        self.symmetry = no_symmetry(selection.mesh)
        self._selection = selection
        self._whole = invariant(selection.mesh)
        self._near: dict[tuple[int, ...], frozenset[Hashable]] = {
            shape: frozenset().union(*map(_with_gaps, layouts)) for shape, layouts in selection.layouts.items()
        }

    def holds(self, shape: tuple[int, ...], layout: Layout) -> bool:
        near = self._near.get(shape)
        return layout == self._whole or (near is not None and not near.isdisjoint(_with_gaps(layout)))

    def choices(self, path: str, roles: Sequence[Sequence[Role]]) -> Iterable[Configuration]:
        found = (
            (*one[:axis], role, *one[axis + 1 :])
            for one in self._selection.of(path)
            for axis, every in enumerate(roles)
            for role in every
        )
        return _in_order(found, roles)

    def key(self, path: str) -> Hashable:
        return "neighbours", self._selection.of(path)


@lru_cache(maxsize=65536)
def _with_gaps(layout: Layout) -> frozenset[Hashable]:
    """What the other axes do, for every axis."""
    kinds = without_places(layout)
    return frozenset((axis, *kinds[:axis], *kinds[axis + 1 :]) for axis in range(len(kinds)))


def _in_order(found: Iterable[Configuration], roles: Sequence[Sequence[Role]]) -> list[Configuration]:
    """Those that have one of the roles along every axis, each once, in the order of the roles."""
    numbers = [{role: number for number, role in enumerate(every)} for every in roles]
    known = {c for c in found if all(role in order for role, order in zip(c, numbers, strict=True))}
    return sorted(known, key=lambda c: [order[role] for role, order in zip(c, numbers, strict=True)])
