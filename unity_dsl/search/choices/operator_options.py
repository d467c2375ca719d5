"""Options of each operator: its configurations with prices, those of equal layouts merged."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from ...graph.graph import Node
from ...graph.layout import Invariant, Layout, Mesh, Replicate
from ...graph.layout_typing import Configuration, Proved, ProvedRoles, Role, Theorems, TypedOperator, Uniformly
from ...graph.precision import arithmetic
from ...index.library import Library
from ...machine.cast_price import price_operand_casts
from ...machine.machine import Machine
from ...machine.operator_price import price_operators
from ..cost_network.bucket_elimination import Table
from .axis_choices import AxisChoices, axis_choices, role_number

_TIE = 1e-14
"""Seconds by which a Replicate is worse than an Invariant of equal price."""


@dataclass(frozen=True)
class LayoutColumn:
    """One layout per configuration: `layouts[index[i]]`, each of `layouts` once."""

    layouts: tuple[Layout, ...]
    index: npt.NDArray[np.intp]


def _column(layouts: Sequence[Layout]) -> LayoutColumn:
    number = {layout: i for i, layout in enumerate(dict.fromkeys(layouts))}
    return LayoutColumn(tuple(number), np.array([number[layout] for layout in layouts], dtype=np.intp))


@dataclass(frozen=True)
class Options:
    """Configurations of an operator and their seconds. Of those with equal layouts only the cheapest is there."""

    typed: tuple[TypedOperator, ...]
    seconds: Table

    @cached_property
    def arguments(self) -> tuple[LayoutColumn, ...]:
        """Per operand the layouts that the configurations ask for."""
        return tuple(map(_column, zip(*(found.arguments for found in self.typed), strict=True)))

    @cached_property
    def results(self) -> tuple[LayoutColumn, ...]:
        """Per result the layouts that the configurations make."""
        return tuple(map(_column, zip(*(found.results for found in self.typed), strict=True)))

    @cached_property
    def along(self) -> AxisChoices:
        """What the configurations do along every mesh axis."""
        return axis_choices(found.configuration for found in self.typed)

    def chosen(self, mask: Sequence[bool]) -> Options:
        if all(mask):
            return self
        kept = tuple(found for found, keep in zip(self.typed, mask, strict=True) if keep)
        return Options(kept, self.seconds[np.array(mask, dtype=bool)])


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

    def of(self, node: Node, weights: Sequence[bool]) -> Options:
        """Every proved configuration, in a fixed order, the all-Invariant one first."""
        key = _key(node, weights)
        if key not in self._found:
            roles = self._proved_roles(node, weights)
            self._found[key] = self._priced(node, roles.typing.type_every(roles.by_axis))
        return self._found[key]

    def near(self, node: Node, weights: Sequence[bool], around: Around) -> Options:
        """The all-Invariant configuration and those `around` some; every one where there is none around."""
        key = *_key(node, weights), around
        if key not in self._found:
            roles = self._proved_roles(node, weights)
            typed = roles.typed(_neighbours(roles.by_axis, around))
            whole = roles.typed([tuple(by_axis[0] for by_axis in roles.by_axis)])
            if typed and typed[0].configuration != whole[0].configuration:
                typed = [*whole, *typed]
            self._found[key] = self._priced(node, typed) if typed else self.of(node, weights)
        return self._found[key]

    def _proved_roles(self, node: Node, weights: Sequence[bool]) -> ProvedRoles:
        key = _key(node, weights)[:3]
        if key not in self._roles:
            known = self.proved.setdefault(key, {})
            self._roles[key] = ProvedRoles(
                node.instance, self.mesh, self.library, node.gradients, weights, self.theorems, known
            )
        return self._roles[key]

    def _priced(self, node: Node, typed: Sequence[TypedOperator]) -> Options:
        return _merged(typed, price_node(node, typed, self.mesh, self.machine, self.library))


def _key(node: Node, weights: Sequence[bool]) -> tuple[Hashable, ...]:
    return node.instance.identity, node.gradients, tuple(weights), float_types(node)


def float_types(node: Node) -> Hashable:
    """All that the prices of operators of one instance depend on besides: what is cast, and what it is computed in."""
    return node.mixed, *((value.dtype, value.cast_from) for value in (*node.arguments, *node.results))


def _neighbours(by_axis: Sequence[Sequence[Role]], around: Around) -> list[Configuration]:
    """In the order of the product of the roles."""
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
    return [tuple(roles[place] for roles, place in zip(by_axis, one, strict=True)) for one in sorted(found)]


def price_node(
    node: Node,
    typed: Sequence[TypedOperator],
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
            seconds[rows] = price_operators(node.instance, some, dtype, mesh, machine, needs, library)
            seconds[rows] += price_operand_casts(node, some, dtype, machine, backward=backward)
    return seconds


def all_invariant(typed: TypedOperator) -> bool:
    return all(role == Uniformly(Invariant()) for role in typed.configuration)


def _merged(typed: Sequence[TypedOperator], seconds: Table) -> Options:
    best: dict[object, int] = {}
    ties = np.array([_replicates(found) for found in typed])
    costs = seconds + _TIE * ties
    for i, found in enumerate(typed):
        key = found.arguments, found.results
        if key not in best or costs[i] < costs[best[key]]:
            best[key] = i
    kept = sorted(best.values())
    return Options(tuple(typed[i] for i in kept), costs[kept])


def _replicates(typed: TypedOperator) -> int:
    return sum(isinstance(kind, Replicate) for layout in (*typed.arguments, *typed.results) for kind in layout.kinds)
