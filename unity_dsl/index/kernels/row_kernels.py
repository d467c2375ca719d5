"""Kernels over rows and columns: which equations of an instance a single pass over its operands computes.

A kernel's programs divide the rows among them, and each has all columns of its rows, at once or tile by tile. In one
pass it evaluates equations without a reduction, reduces along the columns (a row's softmax, its mean), and sums over
the rows, for which every program leaves a partial sum. Matrix products are excluded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import prod

from ...syntax.ast import Read, ReductionKind
from ..equations.instance import Equation, Instance, Key
from ..equations.loop_nest import LoopNest, loop_nest
from ..equations.term import dim_axes, free_axes, reads, substitute
from .backward import aliases
from .read_closure import read_by, unreduced

REPEATS = 32
"""A kernel has at most this many times as many positions as its operands have elements; else others are better."""


@dataclass(frozen=True)
class RowKernel:
    """One pass over `rows` x `columns`, axes in the order in which positions are numbered, major first.

    `reduced` are equations that reduce along all columns, in order. `summed` are equations that sum over all rows, and
    over all columns too if their result has none of them. `stored` are the tensors that it writes to memory, by name.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduced: tuple[str, ...] = ()
    summed: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()


def row_kernels(instance: Instance) -> tuple[RowKernel, ...] | None:
    """The kernels that compute an instance, in order, as few as a greedy choice finds; None if there are none.

    There are none if some equation is not of this kind, or a kernel exceeds `REPEATS`. No kernel computes outputs that
    are an unchanged input (`aliases`).
    """
    return _row_kernels(instance.identity)


@lru_cache(maxsize=4096)
def _row_kernels(identity: Key) -> tuple[RowKernel, ...] | None:
    instance = identity.instance
    if instance.extern or not all(_in_one_pass(instance, equation) for equation in instance.equations):
        return None
    found = _Schedule(instance).kernels()
    elements = sum(prod(instance.shape(operand)) for operand in (*instance.inputs, *instance.outputs))
    positions = [prod(instance.sizes[axis] for axis in (*kernel.rows, *kernel.columns)) for kernel in found]
    return found if max(positions, default=0) <= REPEATS * elements else None


def _in_one_pass(instance: Instance, equation: Equation) -> bool:
    if equation.kind is ReductionKind.PROD or equation.target.integer_range is not None:
        return False
    nest = loop_nest(instance, equation)
    return nest.unguarded and not is_product(nest)


def is_product(nest: LoopNest) -> bool:
    """Whether two factors that are summed along a common axis each have an axis of the result that the other lacks."""
    kept, over = set(nest.equation.target.axes), set(nest.over)
    axes = [set(free_axes(substitute(factor, nest.positions))) for factor in nest.factors]
    return any(
        first & second & over and (first - second) & kept and (second - first) & kept
        for first, second in combinations(axes, 2)
    )


@dataclass
class _Stage:
    """A kernel under construction."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduced: list[str] = field(default_factory=list)
    summed: list[str] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)


class _Schedule:
    """Assigns equations in order, each to the first kernel that can compute it, or to a new one."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.nests: dict[str, LoopNest] = {e.target.name: loop_nest(instance, e) for e in instance.equations}
        self.stages: list[_Stage] = []
        self.made_in: dict[str, int] = {}

    def kernels(self) -> tuple[RowKernel, ...]:
        outputs = {output.name for output in self.instance.outputs} - aliases(self.instance).keys()
        needed = outputs | read_by((self.nests[name].value for name in outputs), self.nests, lambda name: True)
        for name, nest in self.nests.items():
            if name in needed and nest.over:
                self.reduce(name, nest)
        for name in self.nests:
            if name in outputs and name not in self.made_in:
                self.evaluate(name)
        for name, number in self.made_in.items():
            later = any(name in self.reads_of(place) for place in range(number + 1, len(self.stages)))
            if (name in outputs or later) and name not in self.stages[number].stored:
                self.stages[number].stored.append(name)
        return tuple(
            RowKernel(stage.rows, stage.columns, tuple(stage.reduced), tuple(stage.summed), tuple(stage.stored))
            for stage in self.stages
        )

    def reduce(self, name: str, nest: LoopNest) -> None:
        kept, over = nest.equation.target.axes, nest.over
        last = self.last_needed(name)
        for number, stage in enumerate(self.stages):
            if number < last:
                continue
            rows, columns = set(stage.rows), set(stage.columns)
            ready = number > last or self.in_rows(name, number)
            if ready and set(kept) == rows and set(over) == columns:
                stage.reduced.append(name)
            elif (
                ready
                and nest.equation.kind is ReductionKind.SUM
                and (
                    (set(over) == rows and (not kept or set(kept) == columns))
                    or (not kept and set(over) == rows | columns)
                )
            ):
                stage.summed.append(name)
            else:
                continue
            self.made_in[name] = number
            return
        self.made_in[name] = len(self.stages)
        if nest.equation.kind is ReductionKind.SUM and (not kept or not self.runs_along(nest)):
            self.stages.append(_Stage(over, kept, summed=[name]))
        else:
            self.stages.append(_Stage(kept, over, reduced=[name]))

    def evaluate(self, name: str) -> None:
        """Assigns an output without a reduction."""
        axes = set(self.nests[name].equation.target.axes)
        last = self.last_needed(name)
        for number, stage in enumerate(self.stages):
            rows, columns = set(stage.rows), set(stage.columns)
            ready = number > last or (number == last and self.in_rows(name, number))
            if ready and axes in (rows, rows | columns) and self.free_axes(name) <= rows | columns:
                stage.stored.append(name)
                self.made_in[name] = number
                return
        self.made_in[name] = len(self.stages)
        self.stages.append(_Stage(self.nests[name].equation.target.axes, (), stored=[name]))

    def free_axes(self, name: str) -> set[str]:
        return {axis for found in self.inlined(name) for axis in self.nests[found].axes}

    def inlined(self, name: str) -> set[str]:
        """A tensor and the tensors without a reduction that it is computed from, which every kernel evaluates again."""
        read = unreduced(self.nests[name].value, self.nests)
        return {name, *(other for other in read if other in self.nests and not self.nests[other].over)}

    def reductions(self, name: str) -> set[str]:
        """The reductions that a tensor is computed from, without other reductions between."""
        read = unreduced(self.nests[name].value, self.nests)
        return {other for other in read if other in self.nests and self.nests[other].over}

    def last_needed(self, name: str) -> int:
        """The last kernel whose results a tensor needs; -1 if there is none."""
        return max((self.made_in[other] for other in self.reductions(name)), default=-1)

    def in_rows(self, name: str, number: int) -> bool:
        """Whether a kernel has, row by row, all results that a tensor needs, at the positions where it needs them."""
        stage = self.stages[number]
        made = [other for other in self.reductions(name) if self.made_in[other] == number]
        return all(other in stage.reduced for other in made) and all(
            self.at_own_axes(read) for found in self.inlined(name) for read in reads(self.nests[found].value)
        )

    def at_own_axes(self, read: Read) -> bool:
        """Whether an intermediate is read at the axes over which it is computed."""
        if read.tensor not in self.nests:
            return True
        target = self.nests[read.tensor].equation.target
        return tuple(dim_axes(index, self.instance.sizes) for index in read.index) == target.dims

    def reads_of(self, place: int) -> set[str]:
        """The reductions that a kernel needs, given its number."""
        names = [name for name, number in self.made_in.items() if number == place]
        return {other for name in names for other in self.reductions(name)}

    def runs_along(self, nest: LoopNest) -> bool:
        """Whether the reduced axes include the innermost axis in memory of the largest operand."""
        largest: tuple[int, str] | None = None
        inside = self.inlined(nest.equation.target.name)
        for read in (read for name in self.nests if name in inside for read in reads(self.nests[name].value)):
            if read.tensor in inside:
                continue
            axes = [axis for index in read.index for axis in dim_axes(index, self.instance.sizes) or ()]
            count = len({*free_axes(read)})  # including axes by which a row is looked up
            if axes and (largest is None or count > largest[0]):
                largest = (count, axes[-1])
        return largest is None or largest[1] in nest.over
