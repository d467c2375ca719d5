"""Contractions: kernels of one matrix product each, with what is elementwise in its operands and in its result.

An instance with matrix products that do not depend on each other is computed in three parts: kernels over rows and
columns of what depends on no product, a kernel for each product, and again kernels over rows and columns of what else
is made of them. The kernel of a product evaluates its operands as it reads them (the prologue), and results without a
reduction before it stores its tile (the epilogue). A product may be left to the vendor's library instead, which
multiplies tensors in memory: its operands are then made by the first kernels, and its epilogue by the last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import combinations

from ...syntax.ast import Expr, Read
from ..equations.instance import Instance, Key, Operand
from ..equations.term import call, dim_axes, dim_index, free_axes, reads
from ..lowering.loop_nest import LoopNest, loop_nest
from .backward import aliases
from .product_kernels import ProductKernel
from .read_closure import read_by, unreduced
from .row_kernels import RowKernel, is_product, row_kernels

LEAST = 16
"""No side of what is multiplied at once is shorter than this."""
BLOCK = 128
"""Rows, and columns, of the tile that a program makes, at most."""


@dataclass(frozen=True)
class Contraction:
    """A matrix product `product`: the sum over `inner` of `left`, which has the axes of rows, times `right`, which has
    those of columns.

    Both may have axes of `batch`; axes are major first. The tensors `stored` are the product, or are computed from it
    elementwise. By the `vendor` operands are reads of tensors in memory, and the product is stored.
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


@dataclass(frozen=True)
class Step:
    """A kernel with the instance that its equations are those of: what was made before are inputs of it."""

    kernel: Contraction | RowKernel | ProductKernel
    instance: Instance

    @property
    def reduced(self) -> tuple[str, ...]:
        """The reductions that it makes."""
        kernel = self.kernel
        if isinstance(kernel, ProductKernel):
            return (*kernel.products, *(name for found in kernel.passes for name in found.targets))
        return (kernel.product,) if isinstance(kernel, Contraction) else (*kernel.reduced, *kernel.summed)

    @property
    def loaded(self) -> tuple[Operand, ...]:
        """What it reads of memory."""
        nests, made = nests_of(self.instance), self.reduced
        values = [nests[name].value for name in dict.fromkeys((*made, *self.kernel.stored))]
        found = read_by(values, nests, lambda name: not nests[name].over or name in made)
        memory = [name for name in found if name not in nests or (nests[name].over and name not in made)]
        return tuple(self.instance.operand(name) for name in sorted(memory))

    @property
    def made(self) -> tuple[Operand, ...]:
        """What it leaves in memory."""
        return tuple(map(self.instance.operand, self.kernel.stored))

    @property
    def prologue(self) -> tuple[str, ...]:
        """The equations that the operands of its reductions are computed from, elementwise."""
        return self._evaluated(self.reduced, ())

    @property
    def epilogue(self) -> tuple[str, ...]:
        """The equations that results are computed by, elementwise."""
        own = [name for name in self.kernel.stored if name not in self.reduced]
        return self._evaluated(own, own)

    def _evaluated(self, made: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
        nests = nests_of(self.instance)
        found = read_by([nests[name].value for name in made], nests, lambda name: not nests[name].over)
        return tuple(name for name in nests if name in own or (name in found and not nests[name].over))


def nests_of(instance: Instance) -> dict[str, LoopNest]:
    """The loops of an instance's equations, by their targets."""
    return {equation.target.name: loop_nest(instance, equation) for equation in instance.equations}


def products_of(instance: Instance) -> tuple[str, ...]:
    """The matrix products of an instance, by name."""
    return tuple(name for name, nest in nests_of(instance).items() if is_product(nest))


def contraction_steps(instance: Instance, vendor: Collection[str] = ()) -> tuple[Step, ...] | None:
    """The steps that compute an instance with matrix products, one after the other, those products of `vendor` by the
    vendor's library; None where none do.
    """
    return _contraction_steps(instance.identity, frozenset(vendor))


@lru_cache(maxsize=4096)
def _contraction_steps(identity: Key, vendor: frozenset[str]) -> tuple[Step, ...] | None:
    instance = identity.instance
    nests = nests_of(instance)
    if instance.extern or not all(nest.unguarded for nest in nests.values()):
        return None
    if any(nest.equation.target.integer_range is not None for nest in nests.values()):
        return None
    try:
        return _Schedule(instance, nests, vendor).steps()
    except _NoSchedule:
        return None


class _NoSchedule(ValueError):
    """An equation that no such step computes."""


class _Schedule:
    """`behind` are the equations that depend on products, and these."""

    def __init__(self, instance: Instance, nests: dict[str, LoopNest], vendor: frozenset[str]) -> None:
        self.instance, self.nests, self.vendor = instance, nests, vendor
        names = dict.fromkeys(output.name for output in instance.outputs)  # equal cotangents are one tensor
        self.outputs = [name for name in names if name not in aliases(instance)]
        needed = {*self.outputs, *self.read([nests[name].value for name in self.outputs])}
        self.products = [name for name in nests if name in needed and is_product(nests[name])]
        made = {*self.products}
        self.behind = made | {name for name in nests if self.read([nests[name].value]) & made}

    def steps(self) -> tuple[Step, ...]:
        found = [self.contraction(name) for name in self.products]
        if not found:
            raise _NoSchedule
        stored = {
            one.product: [name for name in self.outputs if not one.vendor and self.in_epilogue(name, one)]
            for one in found
        }
        done = {*self.products, *(name for names in stored.values() for name in names)}
        late = [name for name in self.outputs if name in self.behind - done]
        used = self.reductions(late)
        stored = {name: [*([name] if name in {*self.outputs, *used} else []), *own] for name, own in stored.items()}
        early = [name for name in self.outputs if name not in self.behind]
        operands = [self.in_memory(side) for one in found if one.vendor for side in (one.left, one.right)]
        wanted = [*self.reductions([*late, *done]), *(name for name in operands if name in self.nests)]
        early += [name for name in dict.fromkeys(wanted) if name not in {*self.behind, *early}]
        given = [name for name in early if self.nests[name].over or name in operands]
        return (
            *self.row_steps(early, []),
            *(
                Step(replace(one, stored=tuple(own)), self.part(dict.fromkeys((one.product, *own)), given))
                for one, own in zip(found, stored.values(), strict=True)
            ),
            *self.row_steps(late, [*given, *(name for name in self.products if name in used)]),
        )

    def contraction(self, name: str) -> Contraction:
        """A product as rows times columns: no factor of a side has an axis of the other's."""
        nest = self.nests[name]
        kept, over = nest.equation.target.axes, set(nest.over)
        if nest.looked_up or nest.running is not None:
            raise _NoSchedule
        axes = [set(free_axes(factor)) for factor in nest.factors]
        for first, second in combinations(axes, 2):
            batch = first & second & {*kept}
            ways = [(one & {*kept}) - batch for one in (first, second)]
            if not (all(ways) and first & second & over) or batch | ways[0] | ways[1] != {*kept}:
                continue
            ways = ways if kept[-1] not in ways[0] else ways[::-1]  # neighbours in memory are neighbours across
            left = [factor for factor, own in zip(nest.factors, axes, strict=True) if not own & ways[1]]
            right = [factor for factor, own in zip(nest.factors, axes, strict=True) if own & ways[1]]
            if any({*free_axes(factor)} & ways[0] for factor in right) or not self.is_plain(name):
                continue
            rows, columns = (tuple(axis for axis in kept if axis in way) for way in ways)
            both = tuple(axis for axis in kept if axis in batch)
            first_side, second_side = (self.as_it_is(_product(factors)) for factors in (left, right))
            found = Contraction(name, both, rows, columns, nest.over, first_side, second_side)
            return self.by_vendor(found) if name in self.vendor else found
        raise _NoSchedule

    def by_vendor(self, one: Contraction) -> Contraction:
        """The product of tensors in memory, each dimension of which is an axis."""
        operands = [self.instance.operand(self.in_memory(side)) for side in (one.left, one.right)]
        product = self.nests[one.product]
        dims = [dim for operand in (*operands, product.equation.target) for dim in operand.dims]
        if product.scale or any(len(dim) != 1 for dim in dims) or any(o.integer_range is not None for o in operands):
            raise _NoSchedule
        left, right = (Read(operand.name, tuple(map(dim_index, operand.dims))) for operand in operands)
        return replace(one, left=left, right=right, vendor=True)

    def as_it_is(self, side: Expr) -> Expr:
        """An operand, that of an input itself if it is one through equations that only name it."""
        try:
            operand = self.instance.operand(self.in_memory(side))
        except _NoSchedule:
            return side
        return side if operand.name in self.nests else Read(operand.name, tuple(map(dim_index, operand.dims)))

    def in_memory(self, side: Expr) -> str:
        """The tensor that an operand is, whole: an input, or an equation, if it is no other tensor as it is."""
        if not isinstance(side, Read) or side.fill is not None:
            raise _NoSchedule
        target = self.instance.operand(side.tensor)
        if tuple(dim_axes(index, self.instance.sizes) for index in side.index) != target.dims:
            raise _NoSchedule
        nest = self.nests.get(side.tensor)
        if nest is not None and not nest.over and isinstance(nest.value, Read):
            try:
                return self.in_memory(nest.value)
            except _NoSchedule:
                return side.tensor
        return side.tensor

    def is_plain(self, name: str) -> bool:
        """Whether operands depend on no other product, and are read at positions that are axes: no convolution."""
        inside = self.inlined(name)
        apart = not self.read([self.nests[name].value]) & self.behind
        return apart and all(
            read.fill is None and all(dim_axes(index, self.instance.sizes) is not None for index in read.index)
            for found in inside
            for read in reads(self.nests[found].value)
        )

    def in_epilogue(self, name: str, one: Contraction) -> bool:
        """Whether an output is computed from a product elementwise."""
        target = self.nests[name].equation.target
        if self.nests[name].over or {*self.reductions([name])} & self.behind != {one.product}:
            return False
        return {*target.axes} == {*self.nests[one.product].equation.target.axes} and all(
            self.at_own_axes(read) for found in self.inlined(name) for read in reads(self.nests[found].value)
        )

    def at_own_axes(self, read: Read) -> bool:
        """Whether an intermediate is read where it is computed."""
        if read.tensor not in self.behind:
            return True
        target = self.nests[read.tensor].equation.target
        return tuple(dim_axes(index, self.instance.sizes) for index in read.index) == target.dims

    def inlined(self, name: str) -> set[str]:
        """An equation with those without a reduction that it reads."""
        read = unreduced(self.nests[name].value, self.nests)
        return {name, *(other for other in read if other in self.nests and not self.nests[other].over)}

    def reductions(self, names: Collection[str]) -> list[str]:
        """The reductions that equations read, through those without one."""
        read = {other for name in names for other in unreduced(self.nests[name].value, self.nests)}
        return [name for name in self.nests if name in read and self.nests[name].over]

    def read(self, values: Sequence[Expr]) -> set[str]:
        return read_by(values, self.nests, lambda name: True)

    def row_steps(self, made: Sequence[str], given: Sequence[str]) -> list[Step]:
        """The kernels over rows and columns that make tensors of what is given."""
        if not made:
            return []
        part = self.part(made, given)
        kernels = row_kernels(part)
        if kernels is None:
            raise _NoSchedule
        return [Step(kernel, part) for kernel in kernels]

    def part(self, made: Collection[str], given: Collection[str]) -> Instance:
        """The instance of the equations that make tensors of others that are there."""
        values = [self.nests[name].value for name in made]
        needed = {*made, *read_by(values, self.nests, lambda name: name not in given)} - {*given}
        equations = tuple(self.nests[name].equation for name in self.nests if name in needed)
        operand = self.instance.operand
        inputs = (*self.instance.inputs, *map(operand, given))
        return replace(self.instance, inputs=inputs, outputs=tuple(map(operand, made)), equations=equations)


def _product(factors: Sequence[Expr]) -> Expr:
    return reduce(lambda left, right: call("*", left, right), factors)
