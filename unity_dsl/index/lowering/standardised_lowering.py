"""Lowers mean, variance and standardised value over all parts of a divided operator to one call."""

from __future__ import annotations

from dataclasses import replace

from ...syntax.ast import Expr
from .division import InnerReplicate
from .standardisation import Standardisation
from .torch_term import Term, merge, number, permute, split
from .value_lowering import Space, Statement

STANDARDISED = "standardised"
"""The operation of the call.

Its arguments are the source, gain and bias or None, eps, mesh axes, and the mean's axes.
"""


def lower_standardised(space: Space, group: Standardisation, axes: tuple[int, ...]) -> bool:
    """Binds mean and variance over mesh axes, and the standardised value or the equation that scales it.

    Returns whether it bound the equation that scales it. The call takes the axes of the mean as the second of three
    dimensions.
    """
    instance, mean = space.instance, space.instance.equations[group.mean].target
    variance, scaled = instance.equations[group.variance].target, group.scaled
    if scaled is not None and any(
        isinstance(one, InnerReplicate) and one.equation == scaled.equation for one in space.division.inner
    ):
        scaled = None  # the equation then reads a converted copy of the gain
    space.enter(instance.equations[group.mean])
    space.detached = False
    order, channel = group.result.axes, mean.axes
    first = order.index(channel[0]) if channel else 0
    parts = order[:first], channel, order[first + len(channel) :]
    x = permute(space.tensor(space.piece(group.source)), order)
    whole = tuple(len(part) for part in parts[:2]) != (1, 1)
    sizes = [[space.local[axis] for axis in part] for part in parts]
    if whole:
        x = merge(x, sizes)
    factors = () if scaled is None else (scaled.gain, scaled.bias)
    given = [_of_channels(space, term, channel) for term in factors or (None, None)]
    target = group.result if scaled is None else instance.equations[scaled.equation].target
    value = Term(STANDARDISED, (x, *given, number(group.eps.value), axes, channel), order)
    variables = space.variable(), space.variable(), space.variable()
    names = target.name, mean.name, variance.name
    space.statements.append(Statement(variables, value, names[0], own=True, others=names[1:]))
    made, *moments = (Term("name", (variable,), order, x.sort) for variable in variables)
    if whole:
        made = replace(split(made, sizes), axes=order)
    if scaled is not None and any(len(dim) != 1 for dim in target.dims):
        made = replace(merge(made, [[space.local[axis] for axis in dim] for dim in target.dims]), axes=order)
    space.variables[target.name] = made if made.is_name else space.keep(target.name, made, own=True), target
    for found, operand in zip(moments, (mean, variance), strict=True):
        term = replace(found, axes=channel)
        if len(channel) != 1 and group.reads(instance, operand.name):
            term = space.keep(operand.name, replace(split(term, [sizes[1]]), axes=channel), own=True)
        space.variables[operand.name] = term, operand
    return scaled is not None


def _of_channels(space: Space, term: Expr | None, channel: tuple[str, ...]) -> Term | None:
    """A term in the axes of the mean, merged into one dimension."""
    if term is None:
        return None
    found = permute(space.tensor(space.float(space.piece(term))), channel)
    return found if len(channel) == 1 else merge(found, [[space.local[axis] for axis in channel]])
