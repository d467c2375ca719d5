"""Options of each operator: its configurations with prices, those of equal layouts merged."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from ...graph.graph import Node
from ...graph.layout import Mesh
from ...graph.layout_typing import Role, TypedOperator
from ...graph.local_operator import LocalOperator
from ...graph.operand_layouts import LayoutColumn
from ...graph.placed_operators import Placed
from ...graph.precision import arithmetic, priced_type
from ...graph.typed_configurations import Proved, ProvedRoles, Theorems, TypedConfigurations
from ...index.library import Library
from ...machine.cast_price import price_operand_casts
from ...machine.machine import Machine
from ...machine.operator_price import price_operators
from ..cost_network.bucket_elimination import Table
from .axis_choices import AxisChoices, role_number

_TIE = 1e-14
"""Seconds by which a Replicate is worse than an Invariant of equal price."""


@dataclass(frozen=True)
class Options:
    """Configurations of an operator and their seconds. Of those with equal layouts only the cheapest is there."""

    configurations: TypedConfigurations
    seconds: Table

    def __len__(self) -> int:
        return len(self.configurations)

    @cached_property
    def typed(self) -> tuple[TypedOperator, ...]:
        return tuple(self.configurations)

    @property
    def arguments(self) -> tuple[LayoutColumn, ...]:
        """Per operand the layouts that the configurations ask for."""
        return self.configurations.columns[: self.configurations.inputs]

    @property
    def results(self) -> tuple[LayoutColumn, ...]:
        """Per result the layouts that the configurations make."""
        return self.configurations.columns[self.configurations.inputs :]

    @cached_property
    def along(self) -> AxisChoices:
        """What the configurations do along every mesh axis."""
        return self.configurations.by_role(role_number)

    def chosen(self, mask: Sequence[bool] | npt.NDArray[np.bool_]) -> Options:
        kept = np.flatnonzero(mask)
        return self if len(kept) == len(self) else Options(self.configurations.chosen(kept), self.seconds[kept])


@dataclass(frozen=True)
class Around:
    """Configurations of an operator that differ from one of the `chosen` along at most `reach` mesh axes. `chosen` are
    rows of `AxisChoices`.
    """

    chosen: frozenset[tuple[int, ...]]
    reach: int = 1


ProvedTable = dict[tuple[Hashable, ...], Proved]
"""By operator, and what of its operands needs a gradient or is stored."""


class OptionTable:
    """Finds the options of operators, of equal ones once. Tables of several meshes share what is `proved`."""

    def __init__(
        self, mesh: Mesh, machine: Machine, library: Library, theorems: Theorems, proved: ProvedTable | None = None
    ) -> None:
        self.mesh = mesh
        self.machine = machine
        self.library = library
        self.theorems = theorems
        self.proved: ProvedTable = {} if proved is None else proved
        self._found: dict[object, Options] = {}
        self._roles: dict[object, ProvedRoles] = {}

    def of(self, node: Node, weights: Sequence[bool], placed: Mapping[int, Placed] = {}) -> Options:
        """Every proved configuration, in a fixed order, the all-Invariant one first; or those in which an operator is
        `placed` along mesh axes.
        """
        key = *_key(node, weights), tuple(placed.items())
        if key not in self._found:
            roles = self._proved_roles(node, weights)
            self._found[key] = self._priced(node, roles.typed_at(placed) if placed else roles.typed())
        return self._found[key]

    def near(self, node: Node, weights: Sequence[bool], around: Around) -> Options:
        """The all-Invariant configuration and those `around` some; every one where there is none around."""
        key = *_key(node, weights), around
        if key not in self._found:
            roles = self._proved_roles(node, weights)
            whole = (0,) * len(roles.by_axis)
            rows = _neighbours(roles.by_axis, around)
            typed = roles.typed(rows if whole in rows else [whole, *rows])
            known = whole in rows or len(typed) > 1
            self._found[key] = self._priced(node, typed) if known else self.of(node, weights)
        return self._found[key]

    def _proved_roles(self, node: Node, weights: Sequence[bool]) -> ProvedRoles:
        key = _key(node, weights)[:3]
        if key not in self._roles:
            known = self.proved.setdefault(key, {})
            self._roles[key] = ProvedRoles(
                node.instance, self.mesh, self.library, node.gradients, weights, self.theorems, known
            )
        return self._roles[key]

    def _priced(self, node: Node, found: TypedConfigurations) -> Options:
        return _merged(found, price_configurations(node, found, self.mesh, self.machine, self.library))


def _key(node: Node, weights: Sequence[bool]) -> tuple[Hashable, ...]:
    return node.instance.identity, node.gradients, tuple(weights), float_types(node)


def float_types(node: Node) -> Hashable:
    """All that the prices of operators of one instance depend on besides: what is cast, and what it is computed in."""
    return node.mixed, node.tf32, *((value.dtype, value.cast_from) for value in (*node.arguments, *node.results))


def _neighbours(by_axis: Sequence[Sequence[Role]], around: Around) -> list[tuple[int, ...]]:
    """The places of their roles, in the order of the product of the roles."""
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


def price_configurations(
    node: Node,
    found: TypedConfigurations,
    mesh: Mesh,
    machine: Machine,
    library: Library,
    *,
    backward: bool = True,
) -> npt.NDArray[np.float64]:
    """`price_node` of each of many configurations. Shape [configurations].

    Operators on other coordinates of a mesh axis run at the same time. What they take together is the most over
    coordinates, which is at least the mean: of an operator on one coordinate of `p` that p-th part counts.
    """
    seconds = price_node(node, found.local, mesh, machine, library, backward=backward)[found.part]
    made = found.columns[-1]
    if not any(layout.placement for layout in made.layouts):
        return seconds
    shares: Table = np.array([mesh.share(layout.placement) for layout in made.layouts])
    return np.asarray(seconds * shares[made.index])


def price_node(
    node: Node,
    typed: Sequence[LocalOperator],
    mesh: Mesh,
    machine: Machine,
    library: Library,
    *,
    backward: bool = True,
) -> npt.NDArray[np.float64]:
    """Seconds of an operator in the float types of a model under each of its configurations, casts included, or of its
    forward alone: those that run the native call may compute in another type than the others. Shape [configurations].
    """
    seconds = np.empty(len(typed))
    needs = tuple(backward and gradient for gradient in node.gradients)
    native = np.array([found.native for found in typed], dtype=bool)
    for rows, called in ((np.flatnonzero(native), True), (np.flatnonzero(~native), False)):
        if rows.size:
            some, dtype = [typed[row] for row in rows.tolist()], arithmetic(node, called, library)
            priced = priced_type(node, called, library)
            seconds[rows] = price_operators(node.instance, some, priced, mesh, machine, needs, library)
            seconds[rows] += price_operand_casts(node, some, dtype, machine, backward=backward)
    return seconds


def _merged(found: TypedConfigurations, seconds: Table) -> Options:
    costs = seconds + _TIE * sum(column.replicated for column in found.columns)
    best: dict[tuple[int, ...], int] = {}
    layouts = zip(*(column.index.tolist() for column in found.columns), strict=True)
    for number, (held, cost) in enumerate(zip(layouts, costs.tolist(), strict=True)):
        if held not in best or cost < costs[best[held]]:
            best[held] = number
    kept = np.array(sorted(best.values()), dtype=np.intp)
    return Options(found.chosen(kept), costs[kept])
