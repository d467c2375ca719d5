"""Lowers sums that add one term per position of a kept axis, chosen by index arithmetic: terms are read in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, Name, Number, Size
from ...syntax.rational import plain_number
from ..equations.loop_nest import LookUp, LoopNest
from ..equations.term import COMPARISONS, call, free_axes, walk
from .torch_term import ARITHMETIC, COMPARE, Range, Sort, Term, number, permute, torch_call
from .value_lowering import Space

LARGEST = 1 << 16
"""The largest number of positions that are examined while the program is written."""

Integers = npt.NDArray[np.int64]


def picked_terms(nest: LoopNest, space: Space) -> Term | None:
    """The unscaled sum, if exactly one summed position is placed at each position of the kept axis.

    A triangle is read row by row in this way. None for any other sum.
    """
    if len(nest.placed) != 1 or nest.looked_up:
        return None
    (found,), over, target = nest.placed, nest.over, nest.equation.target.axes
    chosen = [factor for factor in nest.factors if _is_static(factor)]
    read = [factor for factor in nest.factors if not _is_static(factor)]
    whole = not any(space.division.cuts.get(axis) for axis in (*over, found.axis))
    if len(read) != 1 or not whole or set(free_axes(found.term)) != set(over):
        return None
    count = space.sizes[found.axis]
    if prod(space.sizes[axis] for axis in over) > LARGEST:
        return None
    terms = _chosen_terms(found, chosen, over, space.sizes)
    if terms is None or not _is_once(terms, found.count, count):
        return None
    piece, rest = space.piece(read[0]), [axis for axis in target if axis != found.axis]
    if set(piece.axes) != {*over, *rest} or piece.sort is not Sort.FLOAT:
        return None
    if (terms % found.count).any():
        chosen.append(call("==", call("%", found.term, Number(found.count)), Number(0)))
    place = space.piece(found.position)
    for factor in chosen:
        place = replace(space.function("torch.where", [space.piece(factor), place, number(count)]), sort=Sort.INT)
    flat = permute(place, over).method("flatten", 0, axes=("place",)) if len(over) > 1 else place
    order = torch_call("torch.argsort", flat, axes=(found.axis,), sort=Sort.INT).at([Range(None, count)], (found.axis,))
    order = space.keep("order", order)
    every = permute(piece, [*rest, *over])
    every = every.method("flatten", len(rest), axes=[*rest, found.axis]) if len(over) > 1 else every
    return permute(every.at([*(Range() for _ in rest), order], (*rest, found.axis)), target)


def _is_static(factor: Expr) -> bool:
    """Whether a factor is a comparison of positions."""
    parts = all(isinstance(part, Apply | Name | Number | Size) for part in walk(factor))
    return isinstance(factor, Apply) and factor.function in COMPARISONS and parts


def _chosen_terms(
    found: LookUp, chosen: Sequence[Expr], over: Sequence[str], sizes: Mapping[str, int]
) -> Integers | None:
    """The look-up's term at positions of the summed axes that all factors select; None if something else is read."""
    grid = dict(zip(over, np.meshgrid(*(np.arange(sizes[axis]) for axis in over), indexing="ij"), strict=True))
    shape = next(iter(grid.values())).shape
    try:
        term = np.broadcast_to(_values(found.term, grid, sizes), shape)
        masks = [np.broadcast_to(_values(factor, grid, sizes), shape) for factor in chosen]
    except KeyError:
        return None
    return term[np.all([np.ones(shape, dtype=bool), *masks], axis=0)]


def _is_once(terms: Integers, divisor: int, size: int) -> bool:
    """Whether the terms that `divisor` divides are, once divided, each position of an axis of this size once."""
    places = terms[terms % divisor == 0] // divisor
    inside = places[(places >= 0) & (places < size)]
    return bool((np.bincount(inside, minlength=size) == 1).all()) and len(inside) == len(places)


def _values(expr: Expr, grid: Mapping[str, Integers], sizes: Mapping[str, int]) -> Integers:
    """An index expression at all positions. Raises KeyError for any other expression."""
    match expr:
        case Number(value=value):
            return np.asarray(plain_number(value))
        case Size(name=name):
            return np.asarray(sizes[name])
        case Name(name=name):
            return grid[name]
        case Apply(function=function, arguments=arguments):
            operation = ARITHMETIC.get(function) or COMPARE[function]
            return np.asarray(operation(*(_values(argument, grid, sizes) for argument in arguments)))
    raise KeyError(type(expr).__name__)
