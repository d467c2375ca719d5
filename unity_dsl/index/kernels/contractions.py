"""Contractions: kernels of one matrix product each, fused with elementwise work on its operands and its result.

An instance with independent matrix products is computed in three parts: kernels over rows and columns for what depends
on no product, a kernel for each product, and kernels over rows and columns for the rest. The kernel of a product
evaluates its operands as it reads them (the prologue), and results without a reduction before it stores its tile (the
epilogue). An operand may be read at sums of axes: a convolution is the product of its kernels and of windows that are
never materialised (an implicit product). An operand that is read so lies in memory; the first kernels make it if it is
computed. A product may be left to the vendor's library instead, which multiplies tensors in memory: the first kernels
then make its operands, and the last ones compute its epilogue.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import combinations

from ...syntax.ast import Expr, Read
from ..equations.instance import Instance, Key
from ..equations.loop_nest import LoopNest
from ..equations.term import affine, call, dim_axes, dim_index, free_axes, reads
from .row_kernels import is_product
from .step_schedule import Contraction, NoScheduleError, Step, StepSchedule, nests_of

LEAST = 16
"""The least length of each side of the blocks that are multiplied at once."""
BLOCK = 128
"""The most rows, and the most columns, of the tile that a program computes."""


def products_of(instance: Instance) -> tuple[str, ...]:
    """The matrix products of an instance, by name."""
    return tuple(name for name, nest in nests_of(instance).items() if is_product(nest))


def contraction_steps(instance: Instance, vendor: Collection[str] = ()) -> tuple[Step, ...] | None:
    """The steps that compute an instance with matrix products, in order; None if there are none.

    Products in `vendor` are left to the vendor's library.
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
    except NoScheduleError:
        return None


class _Schedule(StepSchedule):
    """Divides an instance with matrix products. `behind` are the products and the equations that depend on them."""

    def __init__(self, instance: Instance, nests: dict[str, LoopNest], vendor: frozenset[str]) -> None:
        super().__init__(instance, nests)
        self.vendor = vendor
        needed = {*self.outputs, *self.read([nests[name].value for name in self.outputs])}
        self.products = [name for name in nests if name in needed and is_product(nests[name])]
        made = {*self.products}
        self.behind = made | {name for name in nests if self.read([nests[name].value]) & made}

    def steps(self) -> tuple[Step, ...]:
        found = [self.contraction(name) for name in self.products]
        if not found:
            raise NoScheduleError
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
        operands += [name for one in found for name in one.windowed]
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
        """A product as rows times columns: no factor of one side has an axis of the other side."""
        nest = self.nests[name]
        kept, over = nest.equation.target.axes, set(nest.over)
        if nest.looked_up or nest.running is not None:
            raise NoScheduleError
        axes = [set(free_axes(factor)) for factor in nest.factors]
        for first, second in combinations(axes, 2):
            batch = first & second & {*kept}
            ways = [(one & {*kept}) - batch for one in (first, second)]
            if not (all(ways) and first & second & over) or batch | ways[0] | ways[1] != {*kept}:
                continue
            ways = ways if kept[-1] not in ways[0] else ways[::-1]  # columns get the contiguous axis
            left = [factor for factor, own in zip(nest.factors, axes, strict=True) if not own & ways[1]]
            right = [factor for factor, own in zip(nest.factors, axes, strict=True) if own & ways[1]]
            if any({*free_axes(factor)} & ways[0] for factor in right) or not self.is_evaluated(name):
                continue
            rows, columns = (tuple(axis for axis in kept if axis in way) for way in ways)
            both = tuple(axis for axis in kept if axis in batch)
            first_side, second_side = (self.as_it_is(_product(factors)) for factors in (left, right))
            windowed = tuple(dict.fromkeys(read.tensor for read in self.windows(name)))
            found = Contraction(name, both, rows, columns, nest.over, first_side, second_side, windowed=windowed)
            return self.by_vendor(found) if name in self.vendor else found
        raise NoScheduleError

    def by_vendor(self, one: Contraction) -> Contraction:
        """The product of tensors in memory, in which every dimension is one axis."""
        operands = [self.instance.operand(self.in_memory(side)) for side in (one.left, one.right)]
        product = self.nests[one.product]
        dims = [dim for operand in (*operands, product.equation.target) for dim in operand.dims]
        if product.scale or any(len(dim) != 1 for dim in dims) or any(o.integer_range is not None for o in operands):
            raise NoScheduleError
        left, right = (Read(operand.name, tuple(map(dim_index, operand.dims))) for operand in operands)
        return replace(one, left=left, right=right, vendor=True)

    def as_it_is(self, side: Expr) -> Expr:
        """An operand; the input itself if the operand reads an input through equations that only rename it."""
        try:
            operand = self.instance.operand(self.in_memory(side))
        except NoScheduleError:
            return side
        return side if operand.name in self.nests else Read(operand.name, tuple(map(dim_index, operand.dims)))

    def in_memory(self, side: Expr) -> str:
        """The tensor that an operand reads whole: an input, or an equation that does not just rename another tensor."""
        if not isinstance(side, Read) or side.fill is not None:
            raise NoScheduleError
        target = self.instance.operand(side.tensor)
        if tuple(dim_axes(index, self.instance.sizes) for index in side.index) != target.dims:
            raise NoScheduleError
        nest = self.nests.get(side.tensor)
        if nest is not None and not nest.over and isinstance(nest.value, Read):
            try:
                return self.in_memory(nest.value)
            except NoScheduleError:
                return side.tensor
        return side.tensor

    def is_evaluated(self, name: str) -> bool:
        """Whether the operands depend on no product, and windows are read at affine indices."""
        apart = not self.read([self.nests[name].value]) & self.behind
        return apart and all(
            affine(index, self.instance.sizes) is not None for read in self.windows(name) for index in read.index
        )

    def windows(self, name: str) -> list[Read]:
        """The reads of a product at positions other than plain axes, as in a convolution."""
        found: list[Read] = []
        left, seen = [self.nests[name].value], {name}
        while left:
            for read in reads(left.pop()):
                if read.fill is not None or any(dim_axes(index, self.instance.sizes) is None for index in read.index):
                    found.append(read)
                elif read.tensor in self.nests and read.tensor not in seen and not self.nests[read.tensor].over:
                    seen.add(read.tensor)
                    left.append(self.nests[read.tensor].value)
        return found

    def in_epilogue(self, name: str, one: Contraction) -> bool:
        """Whether an output is computed elementwise from a product."""
        target = self.nests[name].equation.target
        if self.nests[name].over or {*self.reductions([name])} & self.behind != {one.product}:
            return False
        return {*target.axes} == {*self.nests[one.product].equation.target.axes} and all(
            self.at_own_axes(read) for found in self.inlined(name) for read in reads(self.nests[found].value)
        )

    def at_own_axes(self, read: Read) -> bool:
        """Whether an intermediate is read at the positions where it is computed."""
        if read.tensor not in self.behind:
            return True
        target = self.nests[read.tensor].equation.target
        return tuple(dim_axes(index, self.instance.sizes) for index in read.index) == target.dims


def _product(factors: Sequence[Expr]) -> Expr:
    return reduce(lambda left, right: call("*", left, right), factors)
