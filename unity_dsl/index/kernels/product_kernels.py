"""Kernels over products of rows and columns that are never stored: attention without its score matrix.

A kernel has programs for every batch position and block of rows. Each program loops over the columns tile by tile. For
a tile it recomputes matrix products of rows and columns, evaluates elementwise equations on them, and reduces along the
columns: to one number per row, or by a second matrix product to a vector per row (Dao et al. 2022, FlashAttention).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from ...syntax.ast import Expr, ReductionKind
from ..equations.instance import Instance, Key, Operand
from ..equations.loop_nest import LoopNest, loop_nest
from ..equations.term import free_axes
from ..gradients.independence import scaling
from .backward import aliases
from .live_columns import ALL, Live, live_columns
from .read_closure import read_by
from .row_kernels import is_product

INNER = 256
"""The most positions of a product's summed axes, and of the row axes that a second product makes: all are held."""


@dataclass(frozen=True)
class Pass:
    """Reductions in one loop over the columns.

    `extremum` is a maximum. The sums use its value so far, and when it grows they are rescaled by exp(scale * growth).
    `divided` pairs a sum with the sum that divides it at the end; in the loop it is computed as if the divisor were 1.
    """

    targets: tuple[str, ...]
    extremum: str | None = None
    scales: tuple[tuple[str, int], ...] = ()
    divided: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ProductKernel:
    """A kernel over `batch` axes, one position per program, and axes of `rows` and of `columns`, each major first.

    `products` are matrix products of rows and columns. `mixed` are reductions along the columns whose results have axes
    of their own. `stored` are the tensors that the kernel writes to memory. `live` says which columns count for a row,
    by the last axes of both.
    """

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    products: tuple[str, ...]
    mixed: tuple[str, ...]
    passes: tuple[Pass, ...]
    stored: tuple[str, ...]
    live: Live = ALL


def product_kernels(instance: Instance) -> tuple[ProductKernel, ...] | None:
    """The kernels that compute an instance, in order; None if they cannot compute it or save nothing.

    They save nothing if no product is consumed by reductions.
    """
    return _product_kernels(instance.identity)


@lru_cache(maxsize=4096)
def _product_kernels(identity: Key) -> tuple[ProductKernel, ...] | None:
    instance = identity.instance
    if instance.extern or any(equation.kind is ReductionKind.PROD for equation in instance.equations):
        return None
    nests = {equation.target.name: loop_nest(instance, equation) for equation in instance.equations}
    if any(not nest.unguarded or nest.equation.target.integer_range is not None for nest in nests.values()):
        return None
    try:
        return tuple(_Schedule(instance, nests).kernels())
    except _NoSchedule:
        return None


class _NoSchedule(ValueError):
    """An equation that no such kernel computes."""


@dataclass
class _Stage:
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    products: list[str] = field(default_factory=list)
    reduced: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)


class _Schedule:
    def __init__(self, instance: Instance, nests: dict[str, LoopNest]) -> None:
        self.instance = instance
        self.nests = nests
        self.products: dict[str, None] = {}
        for name, nest in nests.items():
            if is_product(nest) and not any(other in self.products for other in self.inlined(nest.value)):
                self.products[name] = None
        self.stages: list[_Stage] = []
        self.made_in: dict[str, int] = {}

    def kernels(self) -> Iterator[ProductKernel]:
        outputs = {output.name for output in self.instance.outputs} - aliases(self.instance).keys()
        needed = outputs | read_by((self.nests[name].value for name in outputs), self.nests, lambda name: True)
        for name, nest in self.nests.items():
            if name in needed and nest.over and name not in self.products:
                self.reduce(name, nest)
        # Without a statistic per row, a product of products multiplies three matrices, which two kernels do as well.
        wanted = any(stage.products and stage.reduced for stage in self.stages)
        if not wanted or outputs & self.products.keys():
            raise _NoSchedule
        for name in self.nests:
            if name in outputs and name not in self.made_in:
                self.evaluate(name)
        for place, stage in enumerate(self.stages):
            later = {name for after in range(place + 1, len(self.stages)) for name in self.reads_of(after)}
            made = [name for name, number in self.made_in.items() if number == place]
            stored = tuple(name for name in made if name in outputs or name in later)
            mixed = tuple(stage.mixed)
            passes = tuple(_passes(self, stage))
            targets = [*stage.reduced, *stage.mixed]
            live = live_columns(self.nests, targets, stage.rows[-1], stage.columns[-1], self.instance.sizes)
            products = tuple(stage.products)
            yield ProductKernel(stage.batch, stage.rows, stage.columns, products, mixed, passes, stored, live)

    def inlined(self, value: Expr) -> set[str]:
        """The tensors that a value is computed from, through equations without a reduction and through products."""
        return read_by([value], self.nests, lambda name: not self.nests[name].over or name in self.products)

    def reduce(self, name: str, nest: LoopNest) -> None:
        """Assigns a reduction to the kernel that has its axes."""
        inside = self.inlined(nest.value)
        products = [other for other in self.products if other in inside]
        kept, over = nest.equation.target.axes, nest.over
        number = self.stage(nest, products, inside) if products else self.beside(kept, over, inside)
        stage = self.stages[number]
        own = [axis for axis in kept if axis not in (*stage.batch, *stage.rows)]
        missing = set(stage.batch + stage.rows) - set(kept)
        if any(self.instance.sizes[axis] > 1 for axis in missing) or not self.small(own):
            raise _NoSchedule
        if own:
            factor = mixed_side(nest, own)
            if factor is None or not set(free_axes(factor)) <= {*stage.batch, *stage.columns, *own}:
                raise _NoSchedule
            if self.inlined(factor) & self.products.keys():
                raise _NoSchedule
        (stage.mixed if own else stage.reduced).append(name)
        stage.products += [other for other in products if other not in stage.products]
        self.made_in[name] = number

    def stage(self, nest: LoopNest, products: list[str], inside: set[str]) -> int:
        """The kernel of a reduction of products of rows and columns. Adds a new kernel if there is none."""
        made = {frozenset(self.nests[name].equation.target.axes) for name in products}
        shared: set[str] | None = None
        for name in products:
            product = self.nests[name]
            sides = product_sides(product)
            if sides is None or not self.small(product.over):
                raise _NoSchedule
            first, second = (set(free_axes(side)) for side in sides)
            common = (first & second) - set(product.over)
            shared = common if shared is None else shared & common
        assert shared is not None
        over = set(nest.over)
        if len(made) > 1 or shared & over:
            raise _NoSchedule
        axes = self.nests[products[0]].equation.target.axes
        batch = tuple(axis for axis in axes if axis in shared)
        rows = tuple(axis for axis in axes if axis not in shared and axis not in over)
        if over != set(axes) - set(batch) - set(rows) or not rows:
            raise _NoSchedule
        last = self.last(inside)
        for number, stage in enumerate(self.stages):
            if number >= last and (set(stage.batch), set(stage.rows)) == (set(batch), set(rows)):
                return number
        self.stages.append(_Stage(batch, rows, tuple(axis for axis in axes if axis in over)))
        return len(self.stages) - 1

    def beside(self, kept: tuple[str, ...], over: tuple[str, ...], inside: set[str]) -> int:
        """The kernel of a reduction without products: a kernel with the same rows and columns."""
        for number, stage in enumerate(self.stages):
            if (
                number >= self.last(inside)
                and set(kept) == {*stage.batch, *stage.rows}
                and set(over) == set(stage.columns)
            ):
                return number
        raise _NoSchedule

    def evaluate(self, name: str) -> None:
        """Assigns an output without a reduction, over rows and axes that a second product makes."""
        inside = self.inlined(self.nests[name].value)
        number = self.last(inside)
        if number < 0 or inside & self.products.keys():
            raise _NoSchedule
        stage = self.stages[number]
        own = set(self.nests[name].equation.target.axes) - {*stage.batch, *stage.rows}
        if own & set(stage.columns) or not self.small(own):
            raise _NoSchedule
        self.made_in[name] = number

    def last(self, inside: set[str]) -> int:
        return max((self.made_in[other] for other in inside if other in self.made_in), default=-1)

    def small(self, axes: set[str] | tuple[str, ...] | list[str]) -> bool:
        return prod(self.instance.sizes[axis] for axis in axes) <= INNER

    def reads_of(self, place: int) -> set[str]:
        """The reductions that a kernel needs."""
        names = [name for name, number in self.made_in.items() if number == place]
        inside = {other for name in names for other in self.inlined(self.nests[name].value)}
        return {other for other in inside if other in self.made_in}


def _passes(schedule: _Schedule, stage: _Stage) -> Iterator[Pass]:
    """Loops over the columns, as few as dependence and online reductions allow."""
    nests = schedule.nests
    order = [name for name in nests if name in stage.reduced or name in stage.mixed]
    left = list(order)
    while left:
        ready = [name for name in left if not schedule.inlined(nests[name].value) & set(left)]
        left = [name for name in left if name not in ready]
        found = Pass(tuple(ready))
        if len(ready) == 1 and nests[ready[0]].equation.kind is ReductionKind.MAX:
            found = _online(schedule, ready[0], left)
            left = [name for name in left if name not in found.targets]
        yield found


def _online(schedule: _Schedule, extremum: str, left: list[str]) -> Pass:
    """A maximum with the sums that can use its value so far (Milakov, Gimelshein 2018, online softmax)."""
    instance, nests = schedule.instance, schedule.nests
    taken: list[str] = []
    scales: list[tuple[str, int]] = []
    divided: list[tuple[str, str]] = []
    for name in left:
        inside = schedule.inlined(nests[name].value) & {*left, extremum}
        norms = [other for other in inside if other in taken]
        if nests[name].equation.kind is not ReductionKind.SUM or inside - {extremum, *taken} or len(norms) > 1:
            continue
        if norms and scaling(instance, name, norms[0], multiplied=True, held=frozenset({extremum})) != -1:
            continue
        scale = scaling(instance, name, extremum, held=frozenset(norms))
        if scale is None or scale.denominator != 1:
            continue
        taken.append(name)
        scales.append((name, int(scale)))
        divided += [(name, norms[0])] if norms else []
    return Pass((extremum, *taken), extremum if taken else None, tuple(scales), tuple(divided))


def statistics(kernels: Sequence[ProductKernel], instance: Instance) -> tuple[Operand, ...]:
    """Per-row values that kernels compute besides results: small to save, but a loop over all columns to recompute."""
    outputs = {output.name for output in instance.outputs}
    made = {name for kernel in kernels for found in kernel.passes for name in found.targets if name not in kernel.mixed}
    return tuple(e.target for e in instance.equations if e.target.name in made - outputs)


def product_sides(nest: LoopNest) -> tuple[Expr, Expr] | None:
    """The two factors of a product that depend on axes; None if there are not two."""
    sides = [factor for factor in nest.factors if free_axes(factor)]
    return (sides[0], sides[1]) if len(sides) == 2 else None


def mixed_side(nest: LoopNest, own: Collection[str]) -> Expr | None:
    """The factor of a sum that has the result's `own` axes; None if there is not exactly one."""
    sides = [factor for factor in nest.factors if set(own) & set(free_axes(factor))]
    return sides[0] if nest.equation.kind is ReductionKind.SUM and len(sides) == 1 else None
