"""Gives an operand of a second matrix product an equation of its own, so that its cotangent is one equation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from ...syntax.ast import Expr, Name, Read, ReductionKind
from ..equations.instance import Equation, Instance, Operand
from ..equations.loop_nest import loop_nest, without
from ..equations.term import call, free_axes, fresh


def with_named_tiles(instance: Instance) -> Instance:
    """The instance in which `sum(t) e[s, t] / z[s] * v[t, d]` is `sum(t) p[s, t] * v[t, d]` with an equation for p."""
    names = {operand.name for operand in instance.inputs} | {e.target.name for e in instance.equations}
    equations: list[Equation] = []
    for equation in instance.equations:
        equations += _named(instance, equation, names)
    return replace(instance, equations=tuple(equations))


def _named(instance: Instance, equation: Equation, names: set[str]) -> Iterator[Equation]:
    nest = loop_nest(instance, equation)
    factors = [factor for factor in nest.factors if free_axes(factor)]
    if equation.kind is ReductionKind.SUM and nest.over and not nest.placed and not nest.looked_up:
        for side in factors:
            tile = [factor for factor in factors if factor is not side]
            if isinstance(side, Read) and _is_tile(tile, side, equation):
                product = reduce(lambda left, right: call("*", left, right), tile)
                axes = tuple(axis for axis in equation.space if axis in free_axes(product))
                name = fresh(f"{equation.target.name}_tile", names)
                names.add(name)
                yield Equation(Operand(name, tuple((axis,) for axis in axes)), product, span=equation.span)
                value: Expr = reduce(without, tile, equation.value)
                value = call("*", Read(name, tuple(map(Name, axes))), value)
                yield replace(equation, value=value)
                return
    yield equation


def _is_tile(tile: list[Expr], side: Read, equation: Equation) -> bool:
    """Whether `tile` is more than a read, and forms a matrix product with `side`.

    They share a summed axis, and each has an axis of the result that the other lacks.
    """
    if not tile or (len(tile) == 1 and isinstance(tile[0], Read)):
        return False
    own, kept = set(free_axes(side)), set(equation.target.axes)
    others = {axis for part in tile for axis in free_axes(part)}
    return bool((own - others) & kept and (others - own) & kept and own & others & set(equation.over))
