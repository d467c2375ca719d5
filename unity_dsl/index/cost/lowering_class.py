"""Lowering class of an operator, from its loops: contraction, row reduction, window, gather, …"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from ...syntax.ast import Read, ReductionKind
from ..equations.instance import Equation, Instance, Key
from ..equations.loop_nest import loop_nest
from ..equations.term import affine, dim_axes, free_axes, reads, substitute
from .work import moves_only


class LoweringClass(StrEnum):
    """Lowering classes, most demanding first. An operator has the first class that any of its equations has."""

    WINDOW = "window"
    CONTRACTION = "contraction"
    SCAN = "scan"
    ROW_REDUCTION = "row reduction"
    SCATTER = "scatter"
    GATHER = "gather"
    ELEMENTWISE = "elementwise"
    VIEW = "view"
    EXTERN = "extern"


PRODUCT_CLASSES = (LoweringClass.CONTRACTION, LoweringClass.WINDOW)
"""Classes of sums of products: matrix products and convolutions."""


def lowering_class(instance: Instance) -> LoweringClass:
    """The class of the most demanding equation. A lookup inside a larger expression is not a gather."""
    return _lowering_class(instance.identity)


@lru_cache(maxsize=4096)
def _lowering_class(identity: Key) -> LoweringClass:
    instance = identity.instance
    if instance.extern:
        return LoweringClass.EXTERN
    found = {class_of_equation(instance, equation) for equation in instance.equations}
    if LoweringClass.ELEMENTWISE in found:
        found.discard(LoweringClass.GATHER)
    return next(kind for kind in LoweringClass if kind in found)


def class_of_equation(instance: Instance, equation: Equation) -> LoweringClass:
    """The class of one equation."""
    nest = loop_nest(instance, equation)
    if nest.placed:
        return LoweringClass.WINDOW if nest.slides else LoweringClass.SCATTER
    over, value = set(nest.over), nest.value
    if nest.looked_up and not over:
        return LoweringClass.GATHER
    if not over:
        return LoweringClass.VIEW if moves_only(value) else LoweringClass.ELEMENTWISE
    if any(_slides(instance, read, over) for read in reads(value)):
        return LoweringClass.WINDOW
    if nest.running is not None:
        return LoweringClass.SCAN
    at = nest.positions
    factor_axes = [set(free_axes(substitute(f, at))) for f in nest.factors if isinstance(f, Read)]
    contracted = [axes for axes in factor_axes if axes & over]
    if equation.kind is ReductionKind.SUM and any(axes != contracted[0] for axes in contracted):
        return LoweringClass.CONTRACTION
    return LoweringClass.ROW_REDUCTION


def slides_over(instance: Instance, equation: Equation, axis: str) -> bool:
    """Whether a reduced axis belongs to a window: an index of a read mixes it with another axis."""
    return any(_slides(instance, read, {axis}) for read in reads(loop_nest(instance, equation).value))


def _slides(instance: Instance, read: Read, over: set[str]) -> bool:
    """Whether an index mixes a reduced axis with another, other than as a merged dimension."""
    for index in read.index:
        form = affine(index, instance.sizes)
        mixed = form is not None and len(form.axes) > 1 and over & set(form.axes)
        if mixed and dim_axes(index, instance.sizes) is None:
            return True
    return False
