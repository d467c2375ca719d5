"""What one kernel of an instance computes, and how an instance is divided into such steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ...syntax.ast import Expr, Read
from ..equations.instance import Instance, Operand
from ..equations.loop_nest import LoopNest, loop_nest
from .backward import aliases
from .product_kernels import ProductKernel
from .read_closure import read_by, unreduced
from .row_kernels import RowKernel, row_kernels


@dataclass(frozen=True)
class Contraction:
    """A matrix product `product`: the sum over `inner` of `left`, with the axes of rows, times `right`, with columns.

    Both may have axes of `batch`; axes are major first. The tensors `stored` are the product, or are computed from it
    elementwise. With `vendor`, the operands are reads of tensors in memory, and the product is stored. `windowed`
    tensors are read at sums of axes, as in a convolution.
    """

    product: str
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    inner: tuple[str, ...]
    left: Expr
    right: Expr
    stored: tuple[str, ...] = ()
    vendor: bool = False
    windowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scatter:
    """A sum `target` into rows that data choose: each entry adds its `value`, a row of `columns`, to one row.

    `keys` is a tensor of integers, read at the axes `entries` in their order, that says which row. A row of the result
    is a position along `batch`, axes that keys have as well, and along the last of `rows`, which the keys index.
    """

    target: str
    keys: Read
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    entries: tuple[str, ...]
    columns: tuple[str, ...]
    value: Expr

    @property
    def stored(self) -> tuple[str, ...]:
        return (self.target,)


@dataclass(frozen=True)
class Step:
    """A kernel with the instance of its equations. Tensors made before are inputs of the instance."""

    kernel: Contraction | RowKernel | ProductKernel | Scatter
    instance: Instance

    @property
    def reduced(self) -> tuple[str, ...]:
        """The reductions that it computes."""
        kernel = self.kernel
        if isinstance(kernel, ProductKernel):
            return (*kernel.products, *(name for found in kernel.passes for name in found.targets))
        if isinstance(kernel, RowKernel):
            return (*kernel.reduced, *kernel.summed)
        return (kernel.product,) if isinstance(kernel, Contraction) else (kernel.target,)

    @property
    def loaded(self) -> tuple[Operand, ...]:
        """The tensors that it loads from memory."""
        nests, made = nests_of(self.instance), self.reduced
        values = [nests[name].value for name in dict.fromkeys((*made, *self.kernel.stored))]
        found = read_by(values, nests, lambda name: not nests[name].over or name in made)
        memory = [name for name in found if name not in nests or (nests[name].over and name not in made)]
        return tuple(self.instance.operand(name) for name in sorted(memory))

    @property
    def made(self) -> tuple[Operand, ...]:
        """The tensors that it stores in memory."""
        return tuple(map(self.instance.operand, self.kernel.stored))

    @property
    def prologue(self) -> tuple[str, ...]:
        """The equations that compute the operands of its reductions, elementwise."""
        return self._evaluated(self.reduced, ())

    @property
    def epilogue(self) -> tuple[str, ...]:
        """The equations that compute its results from reductions, elementwise."""
        own = [name for name in self.kernel.stored if name not in self.reduced]
        return self._evaluated(own, own)

    def _evaluated(self, made: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
        nests = nests_of(self.instance)
        found = read_by([nests[name].value for name in made], nests, lambda name: not nests[name].over)
        return tuple(name for name in nests if name in own or (name in found and not nests[name].over))


def nests_of(instance: Instance) -> dict[str, LoopNest]:
    """The loops of an instance's equations, by their targets."""
    return {equation.target.name: loop_nest(instance, equation) for equation in instance.equations}


class NoScheduleError(ValueError):
    """An equation that no step computes."""


class StepSchedule:
    """Divides an instance into steps. `nests` are the loops of its equations, `outputs` the outputs that steps make."""

    def __init__(self, instance: Instance, nests: dict[str, LoopNest]) -> None:
        self.instance, self.nests = instance, nests
        names = dict.fromkeys(output.name for output in instance.outputs)  # equal cotangents are one tensor
        self.outputs = [name for name in names if name not in aliases(instance)]

    def inlined(self, name: str) -> set[str]:
        """An equation and the equations without a reduction that it reads."""
        read = unreduced(self.nests[name].value, self.nests)
        return {name, *(other for other in read if other in self.nests and not self.nests[other].over)}

    def reductions(self, names: Collection[str]) -> list[str]:
        """The reductions that equations read, also through equations without one."""
        read = {other for name in names for other in unreduced(self.nests[name].value, self.nests)}
        return [name for name in self.nests if name in read and self.nests[name].over]

    def read(self, values: Sequence[Expr]) -> set[str]:
        return read_by(values, self.nests, lambda name: True)

    def row_steps(self, made: Sequence[str], given: Sequence[str]) -> list[Step]:
        """The kernels over rows and columns that compute the tensors `made` from those `given`."""
        if not made:
            return []
        part = self.part(made, given)
        kernels = row_kernels(part)
        if kernels is None:
            raise NoScheduleError
        return [Step(kernel, part) for kernel in kernels]

    def part(self, made: Collection[str], given: Collection[str]) -> Instance:
        """The instance of the equations that compute the tensors `made` from those `given`."""
        values = [self.nests[name].value for name in made]
        needed = {*made, *read_by(values, self.nests, lambda name: name not in given)} - {*given}
        equations = tuple(self.nests[name].equation for name in self.nests if name in needed)
        operand = self.instance.operand
        inputs = (*self.instance.inputs, *map(operand, given))
        return replace(self.instance, inputs=inputs, outputs=tuple(map(operand, made)), equations=equations)
