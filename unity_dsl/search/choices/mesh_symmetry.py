"""Symmetry of the mesh: axes of one degree and equally fast links may trade places; orbits of layouts under it.

What devices do along such axes is counted rather than told apart: layouts that differ by a renaming of the axes are one
orbit, and so are configurations. The problem over orbits, a conversion costing what the cheapest pair of members costs,
is a relaxation of the problem over layouts: every plan of layouts is a plan of orbits that costs no more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement, permutations, product
from typing import TypeVar

from ...graph.layout import Cut, Layout, Mesh, nest
from ...graph.layout_typing import Configuration, Role

_Chosen = TypeVar("_Chosen")

Orbit = Hashable
"""What layouts have in common that a renaming of mesh axes turns into each other."""


@dataclass(frozen=True)
class Symmetry:
    """Every mesh axis is in one of the `groups`; those of a group may trade places."""

    groups: tuple[tuple[int, ...], ...]

    @cached_property
    def trivial(self) -> bool:
        """Whether every axis is alone: a layout is an orbit then."""
        return all(len(group) == 1 for group in self.groups)

    def orbit(self, layout: Layout) -> Orbit:
        """The same for layouts that differ by a renaming, or by the order of axes that cut one dimension."""
        if self.trivial:
            return layout
        if (known := self._orbits.get(layout)) is not None:
            return known
        kinds = without_places(layout)
        found = tuple(tuple(sorted(kinds[axis] for axis in group)) for group in self.groups)
        return self._orbits.setdefault(layout, found)

    @cached_property
    def _orbits(self) -> dict[Layout, Orbit]:
        """Those found before: models have few layouts, which are asked for again and again."""
        return {}

    def canonical(self, configuration: Configuration) -> Configuration:
        """The one configuration that stands for those that differ by a renaming."""
        if self.trivial:
            return configuration
        found = list(configuration)
        for group in self.groups:
            for axis, role in zip(group, sorted((configuration[axis] for axis in group), key=_role), strict=True):
                found[axis] = role
        return tuple(found)

    def choices(self, roles: Sequence[Sequence[Role]]) -> Iterator[Configuration]:
        """The sorted configurations, given the roles that each axis may have: the same within a group."""
        if self.trivial:
            yield from product(*roles)
            return
        for chosen in product(
            *(combinations_with_replacement(sorted(roles[group[0]], key=_role), len(group)) for group in self.groups)
        ):
            found = dict(zip((axis for group in self.groups for axis in group), sum(chosen, ()), strict=True))
            yield tuple(found[axis] for axis in range(len(found)))

    def renamed(self, layout: Layout) -> Iterable[Layout]:
        """The layouts that renamings make of one. Where axes cut a dimension alike they are nested in mesh order, if
        they were; where one op cuts what another left, they keep their places.
        """
        if self.trivial:
            return (layout,)
        in_order = _alike(layout) and layout == nest(layout.kinds)
        moved = (Layout(kinds) for kinds in self.placements(layout.kinds))
        return dict.fromkeys(nest(found.kinds) if in_order else found for found in moved)

    def placements(self, chosen: Sequence[_Chosen]) -> Iterable[tuple[_Chosen, ...]]:
        """What renamings make of a choice per mesh axis, each once."""
        axes = [axis for group in self.groups for axis in group]
        found: dict[tuple[_Chosen, ...], None] = {}
        for orders in product(*map(permutations, self.groups)):
            source = dict(zip(axes, sum(orders, ()), strict=True))
            found[tuple(chosen[source[axis]] for axis in range(len(chosen)))] = None
        return found


@lru_cache(maxsize=65536)
def without_places(layout: Layout) -> tuple[tuple[object, ...], ...]:
    """The kinds without the nesting, which differs between axes that cut the same dimension."""
    return tuple(
        (type(kind).__name__, kind.dim, kind.by, kind.attributes) if isinstance(kind, Cut) else (type(kind).__name__,)
        for kind in layout.kinds
    )


def _alike(layout: Layout) -> bool:
    """Whether all axes that cut a dimension do it by one op in one way."""
    ways = {kind for kind in without_places(layout) if len(kind) > 1}
    return len(ways) == len({dim for _, dim, *_ in ways})


def _role(role: Role) -> tuple[str, str]:
    return type(role).__name__, str(role)


@lru_cache(maxsize=64)
def symmetry_of(mesh: Mesh) -> Symmetry:
    """Axes of equal degree and level may trade places."""
    groups: dict[tuple[int, int], tuple[int, ...]] = {}
    for number, axis in enumerate(mesh.axes):
        key = axis.degree, axis.level
        groups[key] = (*groups.get(key, ()), number)
    return Symmetry(tuple(groups.values()))


@lru_cache(maxsize=64)
def no_symmetry(mesh: Mesh) -> Symmetry:
    """Every axis is told apart."""
    return Symmetry(tuple((axis,) for axis in range(len(mesh.axes))))
