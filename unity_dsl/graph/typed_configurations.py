"""The proved configurations of an operator, typed many at once: arrays of the numbers of roles, divisions, layouts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..index.equations.instance import Instance
from ..index.library import Library
from .layout import Invariant, Mesh
from .layout_typing import (
    DividedOperator,
    Role,
    TypedOperator,
    Typing,
    Uniformly,
    typed_operator,
)
from .local_operator import LocalOperator
from .operand_layouts import LayoutColumn, Numbers, Value, numbered
from .placed_operators import Placed


class Theorems(Hashable, Protocol):
    """What is proved of operators."""

    def about(self, instance: Instance, gradients: Sequence[bool]) -> Callable[[Role], bool]:
        """A function that says whether the operator, and its adjoints by operands with a gradient, may have a role."""


@dataclass(frozen=True)
class TypedConfigurations:
    """Configurations of an operator. Number i has the role `by_axis[a][rows[i, a]]` along mesh axis a, and is
    `local[part[i]]` on one device. `columns` are the layouts of operands and results; the first `inputs` of them are
    the operands'.
    """

    by_axis: Sequence[Sequence[Role]]
    rows: Numbers
    local: tuple[LocalOperator, ...]
    part: Numbers
    columns: tuple[LayoutColumn, ...]
    inputs: int

    def __len__(self) -> int:
        return len(self.part)

    def __iter__(self) -> Iterator[TypedOperator]:
        return map(self.at, range(len(self)))

    def at(self, number: int) -> TypedOperator:
        roles = tuple(roles[place] for roles, place in zip(self.by_axis, self.rows[number].tolist(), strict=True))
        layouts = tuple(column.layouts[column.index[number]] for column in self.columns)
        return typed_operator(self.local[self.part[number]], roles, layouts, self.inputs)

    def chosen(self, numbers: Numbers) -> TypedConfigurations:
        columns = tuple(column.chosen(numbers) for column in self.columns)
        return TypedConfigurations(
            self.by_axis, self.rows[numbers], self.local, self.part[numbers], columns, self.inputs
        )

    def by_role(self, values: Callable[[Role], int]) -> Numbers:
        """The value of every role, as an array. Shape [configurations, axes]."""
        return _by_axis([list(map(values, roles)) for roles in self.by_axis], self.rows)

    @cached_property
    def invariant(self) -> npt.NDArray[np.bool_]:
        """For each configuration, whether all roles are Invariant."""
        return np.asarray(self.by_role(lambda role: role == Uniformly(Invariant())).all(axis=1))


def typed_configurations(
    typing: Typing, by_axis: Sequence[Sequence[Role]], rows: Numbers | None = None
) -> TypedConfigurations:
    """The possible configurations of unblocked roles: all of them, in the order of the product of roles, or those given
    by `rows` of positions in `by_axis`. Impossible ones are left out.
    """
    chosen = _every_row([len(roles) for roles in by_axis]) if rows is None else rows
    selection: Hashable = None if rows is None else rows.tobytes()
    effects = [[typing.effect(role) for role in roles] for roles in by_axis]

    def at(values: Sequence[Sequence[Value]], numbers: Iterable[int]) -> Iterator[tuple[Value, ...]]:
        for row in chosen[list(numbers)].tolist():
            yield tuple([found[place] for found, place in zip(values, row, strict=True)])

    first, which = numbered(_codes([[effect.along for effect in found] for found in effects], chosen).tolist())
    divisions = list(map(typing.division, at(by_axis, first.values()), at(effects, first.values())))
    parts = [division for division in divisions if isinstance(division, DividedOperator)]
    if len(parts) < len(divisions):
        possible = np.array([isinstance(division, DividedOperator) for division in divisions])
        chosen, which = chosen[possible[which]], (np.cumsum(possible) - 1)[which[possible[which]]]
        selection = chosen.tobytes()
    beside, besides = numbered([part.beside_kinds for part in parts])
    around = (tuple(beside), besides[which].tobytes()) if len(beside) > 1 else tuple(beside)

    def column(place: int, numbers: tuple[tuple[int, ...], ...]) -> LayoutColumn:
        codes = _codes(numbers, chosen)
        first, index = numbered((codes * len(beside) + besides[which] if len(beside) > 1 else codes).tolist())
        rows = zip(at(effects, first.values()), which[list(first.values())].tolist(), strict=True)
        layouts = [typing.layout(place, effect, parts[number]) for effect, number in rows]
        different, again = numbered(layouts)
        return LayoutColumn(tuple(different), again[index])

    columns = []
    for place, placed in enumerate(typing.placements):
        numbers = tuple([tuple([effect.numbers[place] for effect in found]) for found in effects])
        key = numbers, selection, around
        if key not in placed.columns:
            placed.columns[key] = column(place, numbers)
        columns.append(placed.columns[key])
    local = tuple([part.local for part in parts])
    return TypedConfigurations(by_axis, chosen, local, which, tuple(columns), len(typing.instance.inputs))


def _every_row(sizes: Sequence[int]) -> Numbers:
    return np.indices(sizes).reshape(len(sizes), -1).T if sizes else np.zeros((1, 0), dtype=np.intp)


def _by_axis(values: Sequence[Sequence[int]], rows: Numbers) -> Numbers:
    """For each row and axis, the value at the row's position there. Shape [rows, axes]."""
    found = np.empty(rows.shape, dtype=np.intp)
    for axis, of_axis in enumerate(values):
        found[:, axis] = np.array(of_axis, dtype=np.intp)[rows[:, axis]]
    return found


def _codes(values: Sequence[Sequence[int]], rows: Numbers) -> Numbers:
    """A number for each row: equal for rows with the same values along all axes."""
    codes = np.zeros(len(rows), dtype=np.intp)
    for axis, of_axis in enumerate(values):
        codes = codes * (1 + max(of_axis)) + np.array(of_axis, dtype=np.intp)[rows[:, axis]]
    return codes


Proved = dict[int, list[Role]]
"""By the degree of a mesh axis, the roles along it that are proved for an operator."""


class ProvedRoles:
    """The proved roles of an operator, `by_axis` of the mesh, from which configurations are combined.

    `needs_gradient` and `weights` say for each input whether it needs a gradient and whether it is a parameter. `known`
    has the roles that were found on other meshes; new ones are added to it.
    """

    def __init__(
        self,
        instance: Instance,
        mesh: Mesh,
        library: Library,
        needs_gradient: Sequence[bool],
        weights: Sequence[bool],
        theorems: Theorems,
        known: Proved,
    ) -> None:
        self.typing = Typing(instance, mesh, library)
        for axis, degree in enumerate(mesh.degrees):
            if degree not in known:
                proves = theorems.about(instance, needs_gradient)
                suggested = self.typing.roles(axis, needs_gradient, weights)
                known[degree] = [role for role in suggested if proves(role)]
        self.by_axis = [known[degree] for degree in mesh.degrees]

    def typed(self, rows: Iterable[Sequence[int]] | None = None) -> TypedConfigurations:
        """Every configuration that the sizes and the operands' dimensions allow, the all-Invariant one first; or those
        given by `rows` of positions in `by_axis`, in their order.
        """
        chosen = None if rows is None else np.array(list(rows), dtype=np.intp).reshape(-1, len(self.by_axis))
        return typed_configurations(self.typing, self.by_axis, chosen)

    def typed_at(self, placed: Mapping[int, Placed]) -> TypedConfigurations:
        """Every configuration in which some mesh axes have these roles. Along them one logical device computes the
        operator, which is right for any operator.
        """
        by_axis = [[placed[axis]] if axis in placed else roles for axis, roles in enumerate(self.by_axis)]
        return typed_configurations(self.typing, by_axis)


def configurations(
    instance: Instance,
    mesh: Mesh,
    library: Library,
    needs_gradient: Sequence[bool],
    weights: Sequence[bool],
    theorems: Theorems,
) -> list[TypedOperator]:
    """Every proved configuration of an operator, typed, in a fixed order: the all-Invariant one first."""
    return list(ProvedRoles(instance, mesh, library, needs_gradient, weights, theorems, {}).typed())
