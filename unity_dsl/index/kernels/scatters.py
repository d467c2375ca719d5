"""Scatters: sums into rows that data choose, such as the gradient of a table whose rows are looked up.

An instance with independent sums of this kind is computed in three parts: kernels over rows and columns for the
reductions that they need and for what depends on none of them, a kernel for each sum, and kernels over rows and columns
for the rest. The kernel of a sum evaluates the added values as it goes over the entries in the order of their keys. It
therefore writes every row of the result once, and adds in the same order in each run.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ...syntax.ast import Read, ReductionKind
from ..equations.instance import Instance, Key
from ..equations.loop_nest import LoopNest
from ..equations.term import dim_axes, free_axes
from .row_kernels import is_product
from .step_schedule import NoScheduleError, Scatter, Step, StepSchedule, nests_of

PART = 64
"""The number of a row's entries that are added up sequentially. The sums of several such parts are then added."""


def scatter_steps(instance: Instance) -> tuple[Step, ...] | None:
    """The steps that compute an instance with sums into rows that data choose, in order; None if there are none."""
    return _scatter_steps(instance.identity)


@lru_cache(maxsize=4096)
def _scatter_steps(identity: Key) -> tuple[Step, ...] | None:
    instance = identity.instance
    nests = nests_of(instance)
    if instance.extern or not all(nest.everywhere for nest in nests.values()):
        return None
    if any(nest.equation.target.integer_range is not None for nest in nests.values()):
        return None
    try:
        return _Schedule(instance, nests).steps()
    except NoScheduleError:
        return None


class _Schedule(StepSchedule):
    """Divides an instance with sums into rows that data choose, `scattered`.

    `behind` are these sums and the equations that depend on them.
    """

    def __init__(self, instance: Instance, nests: dict[str, LoopNest]) -> None:
        super().__init__(instance, nests)
        needed = {*self.outputs, *self.read([nests[name].value for name in self.outputs])}
        self.scattered = [name for name in nests if name in needed and nests[name].placed]
        made = {*self.scattered}
        self.behind = made | {name for name in nests if self.read([nests[name].value]) & made}

    def steps(self) -> tuple[Step, ...]:
        found = [self.scatter(name) for name in self.scattered]
        if not found:
            raise NoScheduleError
        late = [name for name in self.outputs if name in self.behind and name not in self.scattered]
        needed = self.reductions([*late, *self.scattered])
        early = [name for name in self.outputs if name not in self.behind]
        early += [name for name in needed if name not in {*self.behind, *early}]
        given = [name for name in early if self.nests[name].over]
        return (
            *self.row_steps(early, []),
            *(Step(one, self.part([one.target], given)) for one in found),
            *self.row_steps(late, [*given, *self.scattered]),
        )

    def scatter(self, name: str) -> Scatter:
        """A sum with one axis that keys choose. Its rows are this axis, and the axes of the keys that the sum keeps."""
        nest, sizes = self.nests[name], self.instance.sizes
        equation = nest.equation
        if equation.kind is not ReductionKind.SUM or len(nest.placed) != 1 or is_product(nest):
            raise NoScheduleError
        (placed,) = nest.placed
        keys = placed.term
        if not isinstance(keys, Read) or keys.fill is not None or placed.count != 1:
            raise NoScheduleError
        operand = self.instance.operand(keys.tensor)
        dims = [dim_axes(index, sizes) for index in keys.index]
        entries = tuple(axis for dim in dims for axis in dim or ())
        whole = all(
            dim is not None and prod(sizes[axis] for axis in dim) == prod(sizes[axis] for axis in own)
            for dim, own in zip(dims, operand.dims, strict=True)
        )
        kept = equation.target.axes
        batch = tuple(axis for axis in entries if axis in kept)
        rows = (*batch, placed.axis)
        if not whole or operand not in self.instance.inputs or {*entries} - {*batch} != {*nest.over}:
            raise NoScheduleError
        if kept[: len(rows)] != rows or self.read([nest.value]) & self.behind:
            raise NoScheduleError
        columns = kept[len(rows) :]
        if not {*free_axes(nest.value)} <= {*entries, *columns}:
            raise NoScheduleError
        return Scatter(name, keys, batch, rows, entries, columns, nest.value)
