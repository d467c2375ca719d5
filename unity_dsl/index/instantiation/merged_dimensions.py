"""Splits merged operand dimensions, `x: [n, (g i)]`: derives the sizes of their axes from one size and `where`.

A call gives the size of a dimension, not of its axes. One axis follows from the others, which follow from attributes,
conditions and other operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from ...syntax.ast import DimDecl, TensorDecl
from ...syntax.diagnostic import InputError
from ..equations.instance import Dim
from ..equations.where_conditions import Environment, Value, propagate_all
from .call_frame import Site, attributes_of, conditions_on, dims_text
from .operand_shape import Shape


def unmerge(site: Site, given: Mapping[str, Value]) -> Site:
    """The call with one size per declared axis. Diagnostics show the shapes as given.

    Raises E121 (rank), E122 (a size is no multiple of the known axes), E127 (an axis's size is not determined).
    """
    if not any(tensor.merged for tensor in site.operator.inputs) or len(site.shapes) != len(site.operator.inputs):
        return site
    known: Environment = dict(attributes_of(site, given))
    for tensor, shape in site.operands():
        for axes, sizes in _spread(site, tensor, shape):
            if len(axes) == 1 and not axes[0].rest:
                known.setdefault(axes[0].name, sizes[0])
    conditions = conditions_on(site.operator, ranks=False)
    pending = True
    while pending:
        before = len(known)
        # Unsolvable equations are reported once all sizes are known.
        propagate_all(conditions, known, lambda *_: None)
        for tensor, shape in site.operands():
            for axes, sizes in _spread(site, tensor, shape):
                if len(axes) > 1:
                    _divide(site, tensor, shape, axes, sizes[0], known)
        pending = len(known) > before
    shapes = tuple(_flat(site, tensor, shape, known) for tensor, shape in site.operands())
    return replace(site, shapes=shapes)


def merged_dims(tensor: TensorDecl, axes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The dimensions of a tensor, from `axes` that have one dimension per axis."""
    if not tensor.merged:
        return axes
    rest = len(axes) - sum(not dim.rest for dim in tensor.dims)
    found: list[Dim] = []
    place = 0
    for group in tensor.dimensions:
        if group[0].rest:
            found += axes[place : place + rest]
            place += rest
        else:
            found.append(tuple(axis for dim in axes[place : place + len(group)] for axis in dim))
            place += len(group)
    return tuple(found)


def _spread(site: Site, tensor: TensorDecl, shape: Shape) -> Iterator[tuple[tuple[DimDecl, ...], tuple[int, ...]]]:
    """Yields the axes and the size of every dimension; a rest group comes with all its sizes."""
    if not tensor.merged and any(dim.rest for dim in tensor.dims):
        return
    groups = tensor.dimensions
    fixed = sum(not axes[0].rest for axes in groups)
    rest = len(shape.dims) - fixed
    if rest < 0 or (rest and fixed == len(groups)):
        raise _misfit(site, tensor, shape)
    place = 0
    for axes in groups:
        count = rest if axes[0].rest else 1
        yield axes, shape.dims[place : place + count]
        place += count


def _misfit(site: Site, tensor: TensorDecl, shape: Shape) -> InputError:
    message = f"`{tensor.name}: {dims_text(tensor)}` does not fit shape {shape} of rank {len(shape.dims)}"
    return site.fault("E121", message)


def _divide(
    site: Site, tensor: TensorDecl, shape: Shape, axes: tuple[DimDecl, ...], size: int, known: Environment
) -> None:
    """Determines the one unknown axis of a dimension from its size."""
    unknown = [dim.name for dim in axes if dim.name not in known]
    if len(unknown) > 1:
        return
    rest = prod(int(known[dim.name]) for dim in axes if dim.name in known)
    if rest < 1 or size % rest or (not unknown and size != rest):
        facts = " * ".join(f"{dim.name} = {known[dim.name]}" for dim in axes if dim.name in known)
        wanted = f"no multiple of {facts}" if unknown else f"not {facts}"
        raise site.fault("E122", f"`{tensor.name}: {dims_text(tensor)}` has shape {shape}, where {size} is {wanted}")
    if unknown:
        known[unknown[0]] = size // rest


def _flat(site: Site, tensor: TensorDecl, shape: Shape, known: Mapping[str, Value]) -> Shape:
    if not tensor.merged:
        return shape
    dims: list[int] = []
    for axes, sizes in _spread(site, tensor, shape):
        unknown = [dim.name for dim in axes if len(axes) > 1 and dim.name not in known]
        if unknown:
            raise site.fault("E127", f"nothing determines the size `{unknown[0]}` of `{tensor.name}`")
        dims += [int(known[dim.name]) for dim in axes] if len(axes) > 1 else sizes
    return replace(shape, dims=tuple(dims), text=str(shape))
