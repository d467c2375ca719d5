"""What kind of kernel an operator is: the shape of its loops, from its equations."""

from __future__ import annotations

from enum import StrEnum

from ..syntax.ast import Apply, Expr, Read, ReductionKind
from .instance import Equation, Instance
from .term import dim_axes, reads
from .work import determined_axes


class LoweringClass(StrEnum):
    CONTRACTION = "contraction"
    GATHER = "gather"
    WINDOW = "window"
    ROW_REDUCTION = "row reduction"
    VIEW = "view"
    ELEMENTWISE = "elementwise"


def lowering_class(instance: Instance) -> LoweringClass:
    """The class of the most demanding equation, in the order of `LoweringClass`."""
    found = {_class_of(instance, equation) for equation in instance.equations}
    if LoweringClass.GATHER in found and len(found) > 1:
        # A look-up inside a larger formula, as a loss has for its target, does not make it a gather.
        found.discard(LoweringClass.GATHER)
    return next(kind for kind in LoweringClass if kind in found)


def _class_of(instance: Instance, equation: Equation) -> LoweringClass:
    if determined_axes(equation):
        return LoweringClass.GATHER
    factors = list(_factors(equation.value))
    if equation.kind is ReductionKind.SUM and len(factors) > 1 and all(isinstance(f, Read) for f in factors):
        distinct = {read.index for read in factors if isinstance(read, Read)}
        plain = all(_is_plain(instance, read) for read in reads(equation.value))
        return LoweringClass.CONTRACTION if plain and len(distinct) > 1 else _reduction(plain)
    if equation.over:
        return _reduction(all(_is_plain(instance, read) for read in reads(equation.value)))
    return LoweringClass.VIEW if _moves_only(equation.value) else LoweringClass.ELEMENTWISE


def _reduction(plain: bool) -> LoweringClass:
    return LoweringClass.ROW_REDUCTION if plain else LoweringClass.WINDOW


def _factors(expr: Expr) -> list[Expr]:
    match expr:
        case Apply(function="*", arguments=(left, right)):
            return [*_factors(left), *_factors(right)]
    return [expr]


def _is_plain(instance: Instance, read: Read) -> bool:
    dims = instance.operand(read.tensor).dims
    return all(dim_axes(i, instance.sizes) == dim for i, dim in zip(read.index, dims, strict=True))


def _moves_only(expr: Expr) -> bool:
    """A read, or reads that exclude one another by their fills: elements are moved, none is computed."""
    match expr:
        case Read():
            return True
        case Apply(function="+", arguments=(left, right)):
            return all(_moves_only(side) and isinstance(side, Read) and side.fill is not None for side in (left, right))
    return False
