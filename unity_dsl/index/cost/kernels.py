"""An operator's equations as kernels: the class of each, its work, and its sizes if it is a matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ...syntax.ast import Expr, ReductionKind, Select
from ..equations.instance import Equation, Instance, Key
from ..equations.loop_nest import LoopNest, loop_nest
from ..equations.term import free_axes, reads, substitute
from .lowering_class import LoweringClass, class_of_equation, slides_over
from .work import Axes, Tally, equation_tally


@dataclass(frozen=True)
class MatrixProduct:
    """A sum of products as matrix products of [rows, inner] and [inner, columns], one per batch position.

    Each size is the product of some axes' lengths. `left` and `right` name the tensors from which the two matrices are
    made. A convolution is such a product, with its windows unrolled.
    """

    batch: Axes
    rows: Axes
    columns: Axes
    inner: Axes
    left: frozenset[str]
    right: frozenset[str]


@dataclass(frozen=True)
class EquationKernel:
    """One equation that is computed by itself. `product` is set if it is a matrix product."""

    kind: LoweringClass
    tally: Tally
    product: MatrixProduct | None


def equation_kernels(instance: Instance) -> tuple[EquationKernel, ...]:
    """A kernel for each equation, in order; none for an extern operator."""
    return _equation_kernels(instance.identity)


@lru_cache(maxsize=4096)
def _equation_kernels(identity: Key) -> tuple[EquationKernel, ...]:
    instance = identity.instance
    return tuple(
        EquationKernel(
            class_of_equation(instance, equation),
            equation_tally(instance, equation),
            matrix_product(instance, equation),
        )
        for equation in instance.equations
    )


def matrix_product(instance: Instance, equation: Equation) -> MatrixProduct | None:
    """The matrix product that an equation is; None if it is none.

    It is none if every factor has only those axes of the result that the first factor has.
    """
    nest = loop_nest(instance, equation)
    if equation.kind is not ReductionKind.SUM or not nest.over or nest.running is not None:
        return None
    left, right = _sides(nest)
    if not right:
        return None
    first, second = (_axes(nest, side) for side in (left, right))
    kept, over = equation.target.axes, nest.over
    if nest.slides:  # the windows' axes belong to the matrix product, whose result is added at their positions
        slid = {axis for found in nest.placed for axis in free_axes(found.term)}
        kept = tuple(axis for axis in equation.space if axis in slid or (axis in kept and axis in nest.axes))
        over = tuple(axis for axis in over if axis not in slid)
    return MatrixProduct(
        batch=tuple(axis for axis in kept if axis in first and axis in second),
        rows=tuple(axis for axis in kept if axis in first and axis not in second),
        columns=tuple(axis for axis in kept if axis not in first and axis in second),
        inner=tuple(axis for axis in over if axis in first or axis in second),
        left=_tensors(left),
        right=_tensors(right),
    )


def is_depthwise(instance: Instance, equation: Equation) -> bool:
    """Whether a product is a convolution of several groups, each of which reads one channel."""
    product = matrix_product(instance, equation)
    if product is None or class_of_equation(instance, equation) is not LoweringClass.WINDOW:
        return False
    channels = [axis for axis in product.inner if not slides_over(instance, equation, axis)]
    groups, summed = (prod(instance.sizes[axis] for axis in axes) for axes in (product.batch, channels))
    return groups > 1 and summed == 1


def _sides(nest: LoopNest) -> tuple[list[Expr], list[Expr]]:
    """The factors with no other axes of the result than the first one's, and the other factors. Guards are dropped."""
    factors = [factor for factor in map(_unguarded, nest.factors) if any(reads(factor))]
    if not factors:
        return [], []
    kept = _axes(nest, factors[:1]) - {*nest.over}
    left = [factor for factor in factors if _axes(nest, [factor]) - {*nest.over} <= kept]
    return left, [factor for factor in factors if factor not in left]


def _unguarded(value: Expr) -> Expr:
    while isinstance(value, Select):
        value = value.then
    return value


def _axes(nest: LoopNest, factors: Sequence[Expr]) -> set[str]:
    return {axis for factor in factors for axis in free_axes(substitute(factor, nest.positions))}


def _tensors(factors: Sequence[Expr]) -> frozenset[str]:
    return frozenset(read.tensor for factor in factors for read in reads(factor))
