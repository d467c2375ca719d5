"""Options of each operator: its configurations with prices, those of equal layouts merged."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...graph.graph import Node
from ...graph.layout import Mesh
from ...graph.layout_typing import TypedOperator
from ...graph.local_operator import LocalOperator
from ...graph.operand_layouts import LayoutColumn
from ...graph.placed_operators import Placed
from ...graph.precision import arithmetic, priced_type
from ...graph.typed_configurations import TypedConfigurations
from ...index.library import Library
from ...machine.cast_price import price_operand_casts
from ...machine.machine import Machine
from ...machine.operator_price import price_operators
from ..cost_network.bucket_elimination import Table
from .axis_choices import AxisChoices, role_number
from .proved_configurations import Around, ProvedConfigurations, operator_key

_TIE = 1e-14
"""Seconds by which a Replicate is worse than an Invariant of equal price."""


@dataclass(frozen=True)
class Options:
    """Configurations of an operator and their seconds. If several have equal layouts only the cheapest is kept."""

    configurations: TypedConfigurations
    seconds: Table

    def __len__(self) -> int:
        return len(self.configurations)

    @cached_property
    def typed(self) -> tuple[TypedOperator, ...]:
        return tuple(self.configurations)

    @property
    def arguments(self) -> tuple[LayoutColumn, ...]:
        """For each operand, the layouts that the configurations ask for."""
        return self.configurations.columns[: self.configurations.inputs]

    @property
    def results(self) -> tuple[LayoutColumn, ...]:
        """For each result, the layouts that the configurations make."""
        return self.configurations.columns[self.configurations.inputs :]

    @cached_property
    def along(self) -> AxisChoices:
        """What the configurations do along every mesh axis."""
        return self.configurations.by_role(role_number)

    def chosen(self, mask: Sequence[bool] | npt.NDArray[np.bool_]) -> Options:
        kept = np.flatnonzero(mask)
        return self if len(kept) == len(self) else Options(self.configurations.chosen(kept), self.seconds[kept])


class OptionTable:
    """Finds the options of operators on a mesh among their `proved` configurations, once for equal operators."""

    def __init__(self, mesh: Mesh, machine: Machine, proved: ProvedConfigurations) -> None:
        self.mesh = mesh
        self.machine = machine
        self.library = proved.library
        self.proved = proved
        self._found: dict[object, Options] = {}

    def of(self, node: Node, weights: Sequence[bool], placed: Mapping[int, Placed] = {}) -> Options:
        """Every proved configuration in a fixed order, the all-Invariant one first. With `placed`, the configurations
        in which the operator is placed along these mesh axes.
        """
        key = *_key(node, weights), tuple(placed.items())
        if key not in self._found:
            self._found[key] = self._priced(node, self.proved.of(node, weights, self.mesh, placed))
        return self._found[key]

    def near(self, node: Node, weights: Sequence[bool], around: Around) -> Options:
        """The all-Invariant configuration and those `around` the given ones, or every configuration if there are none
        around.
        """
        key = *_key(node, weights), around
        if key not in self._found:
            found = self.proved.near(node, weights, self.mesh, around)
            self._found[key] = self.of(node, weights) if found is None else self._priced(node, found)
        return self._found[key]

    def _priced(self, node: Node, found: TypedConfigurations) -> Options:
        return _merged(found, price_configurations(node, found, self.mesh, self.machine, self.library))


def _key(node: Node, weights: Sequence[bool]) -> tuple[Hashable, ...]:
    return *operator_key(node, weights), float_types(node)


def float_types(node: Node) -> Hashable:
    """The float types on which prices of operators of one instance depend: what is cast, and the type of the
    arithmetic.
    """
    return node.mixed, node.tf32, *((value.dtype, value.cast_from) for value in (*node.arguments, *node.results))


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

    Operators on different coordinates of a mesh axis run at the same time. Together they take the maximum over
    coordinates, which is at least the mean. An operator on one coordinate of `p` therefore counts by 1/p.
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
    """Seconds of an operator in a model's float types under each of its configurations, casts included. Without
    `backward`, only its forward counts. Configurations that run the native call may compute in another type than the
    others. Shape [configurations].
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
