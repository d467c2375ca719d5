"""Layouts of an operator's operands from the roles of mesh axes, with the order of several axes on one dimension.

Layouts do not depend on the lengths of axes, so operators that differ only in sizes share them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ..index.equations.instance import Equation, Instance, Operand
from ..index.equations.instance import Kind as InstanceKind
from ..index.equations.term import reads
from .halo import Halos
from .layout import Kind, Layout, Mesh, Replicate, Shard, Window, interned

Numbers = npt.NDArray[np.intp]
Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True)
class Effect:
    """The effect of a role on an operator: the kinds of its operands and results, and what tells it from other roles.

    Roles that have the same number for an operand do the same to it. `along` is 0 for all roles that divide nothing.
    `collects` are the equations that need collectives inside the operator if a mesh axis has the role.
    """

    kinds: tuple[Kind, ...]
    numbers: tuple[int, ...]
    along: int
    collects: frozenset[int]


@dataclass(frozen=True, eq=False)
class LayoutColumn:
    """One layout per configuration: `layouts[index[i]]`, each of `layouts` once, in the order of their first use."""

    layouts: tuple[Layout, ...]
    index: Numbers

    def chosen(self, rows: Numbers) -> LayoutColumn:
        first, index = numbered(self.index[rows].tolist())
        return LayoutColumn(tuple([self.layouts[old] for old in first]), index)

    @cached_property
    def replicated(self) -> Numbers:
        """Along how many mesh axes each configuration's layout is Replicate."""
        return np.array([len(layout.where(Replicate)) for layout in self.layouts], dtype=np.intp)[self.index]


def numbered(values: Sequence[Value]) -> tuple[dict[Value, int], Numbers]:
    """The different values in order, each with its first position, and for all values their numbers in that order."""
    first: dict[Value, int] = {}
    for place, value in enumerate(values):
        first.setdefault(value, place)
    number = {value: count for count, value in enumerate(first)}
    return first, np.array([number[value] for value in values], dtype=np.intp)


class Placements:
    """A cache of the layouts of one operand, by the numbers of the kinds that roles give it."""

    def __init__(self) -> None:
        self.layouts: dict[tuple[Hashable, ...], Layout] = {}
        self.columns: dict[Hashable, LayoutColumn] = {}
        self._numbers: dict[tuple[Kind, str], int] = {}

    def number(self, kind: Kind, axis: str) -> int:
        """The number of a kind if a role divides this axis. Slices differ by the axis, which decides their nesting."""
        key = kind, axis if isinstance(kind, Shard | Window) else ""
        return self._numbers.setdefault(key, len(self._numbers))


@lru_cache(maxsize=4096)
def placements(kind: InstanceKind) -> tuple[Placements, ...]:
    """The Placements of every operand and result of operators of a kind."""
    return tuple(Placements() for _ in (*kind.instance.inputs, *kind.instance.outputs))


def place(
    kinds: Sequence[Kind],
    operand: Operand,
    divided: Mapping[str, tuple[int, ...]],
    holding: Halos,
    sliced: Collection[tuple[str, int]],
) -> Layout:
    """The layout of these kinds with the nesting filled in: mesh axes of a merged dimension's major factor come first.

    A window in `sliced` is a slice and nothing beyond it. It becomes a Shard, whatever op holds it.
    """
    placed = list(kinds)
    around = {window.dim: window for window in holding.windows if window.operand == operand.name}
    for dim, factors in enumerate(operand.dims):
        window = around.get(dim)
        names = factors if window is None else (window.axis,)
        nesting = [axis for name in names for axis in divided.get(name, ())]
        if (operand.name, dim) in sliced:
            placed = [Shard(dim) if axis in nesting else kind for axis, kind in enumerate(placed)]
        for position, axis in enumerate(nesting):
            kind = placed[axis]
            assert isinstance(kind, Shard | Window) and kind.dim == dim
            held = holding.merged.get((operand.name, dim, axis))
            if held is not None:
                placed[axis] = Shard(dim, position, *held)
            elif position:
                placed[axis] = type(kind)(dim, position, kind.by, kind.attributes)
    return interned(tuple(placed))


def sliced(
    instance: Instance, holding: Halos, divided: Mapping[str, tuple[int, ...]], mesh: Mesh
) -> frozenset[tuple[str, int]]:
    """The dimensions, by operand, whose windows are plain slices, without anything beyond."""
    return frozenset(
        (window.operand, window.dim)
        for window in holding.windows
        if window.is_slice(
            instance.shape(instance.operand(window.operand))[window.dim], mesh.degree(divided[window.axis])
        )
    )


def dim_of(operand: Operand, axis: str) -> int | None:
    """The dimension of an operand that has an axis."""
    return next((dim for dim, factors in enumerate(operand.dims) if axis in factors), None)


def read_names(equation: Equation) -> tuple[str, ...]:
    """The tensors that an equation reads, each once."""
    return tuple(dict.fromkeys(read.tensor for read in reads(equation.value)))
