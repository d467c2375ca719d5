"""View calls, `reduce_sum(x[b, (h k)] -> [b, h])`: axes of the operand named at the call.

The operator's dimensions are rest groups. The group of the result binds to the axes of the target, in order. The other
group, if any, binds to the axes that the target lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...syntax.ast import OperatorDecl
from ...syntax.diagnostic import suggest
from ..equations.instance import Dim
from ..equations.where_conditions import Environment, Value
from .call_frame import Frame, Site, attributes_of, integer_sizes, solve_conditions
from .operand_shape import Binding, Factors


def pattern_frame(site: Site, given: Mapping[str, Value], binding: Binding) -> Frame:
    """The bindings under a pattern. Raises E129 (operator takes none) and E130 (pattern does not fit)."""
    kept, reduced = pattern_groups(site)
    sizes = _source_sizes(site, binding)
    targets = [axis for factors in binding.target for axis, _ in factors]
    _check_target(site, binding, sizes, targets)
    left_out = [axis for axis in sizes if axis not in targets]
    if reduced is None and left_out:
        message = f"axis `{left_out[0]}` is on the left of the pattern only"
        raise site.fault("E130", message, help=f"`{site.operator.name}` reduces no axis")
    rests = {kept: tuple(targets)} | ({reduced: tuple(left_out)} if reduced is not None else {})
    attributes = attributes_of(site, given)
    known: Environment = {**attributes}
    for name, axes in rests.items():
        known[f"rank({name})"] = len(axes)
        known[f"{name}.."] = prod(sizes[axis] for axis in axes)
    solve_conditions(site, known)
    return Frame(rests, integer_sizes(site, known, sizes), attributes)


def pattern_groups(site: Site) -> tuple[str, str | None]:
    """The group of result axes and the group of reduced axes, if any. Raises E129."""
    found = takes_pattern(site.operator)
    if found is None:
        inputs = "one tensor" if len(site.operator.inputs) == 1 else f"{len(site.operator.inputs)} tensors"
        message = f"takes no pattern: it reads {inputs}, {site.declared}"
        raise site.fault("E129", message, help="rearrange first: `y = x[…] -> […]`")
    return found


def takes_pattern(operator: OperatorDecl) -> tuple[str, str | None] | None:
    """The result group and the reduced group of an operator that can be called with a pattern, else None."""
    if len(operator.inputs) != 1:
        return None
    (tensor,) = operator.inputs
    groups = [dim.name for dim in tensor.dims if dim.rest and not dim.broadcast]
    results = {tuple((dim.name, dim.rest) for dim in output.dims) for output in operator.outputs}
    if len(groups) != len(tensor.dims) or len(results) != 1:
        return None
    (result,) = results
    if len(result) != 1 or not result[0][1] or result[0][0] not in groups:
        return None
    others = [name for name in groups if name != result[0][0]]
    return (result[0][0], others[0] if others else None) if len(others) <= 1 else None


def dims_of(pattern: tuple[Factors, ...]) -> tuple[Dim, ...]:
    return tuple(tuple(axis for axis, _ in factors) for factors in pattern)


def _source_sizes(site: Site, binding: Binding) -> dict[str, int]:
    (shape,) = site.shapes
    (tensor,) = site.operator.inputs
    if len(binding.source) != len(shape.dims):
        message = f"the pattern names {len(binding.source)} dimensions, `{tensor.name}` has shape {shape}"
        raise site.fault("E130", f"{message} of rank {len(shape.dims)}")
    sizes: dict[str, int] = {}
    for position, (factors, size) in enumerate(zip(binding.source, shape.dims, strict=True)):
        product = prod(factor for _, factor in factors)
        if product != size:
            names = " * ".join(f"{axis} = {factor}" for axis, factor in factors) or "1"
            raise site.fault("E130", f"dimension {position} of {shape} has size {size}, the pattern gives {names}")
        for axis, factor in factors:
            if axis in sizes:
                raise site.fault("E130", f"axis `{axis}` occurs twice on the left of the pattern")
            sizes[axis] = factor
    return sizes


def _check_target(site: Site, binding: Binding, sizes: Mapping[str, int], targets: list[str]) -> None:
    for factors in binding.target:
        for axis, size in factors:
            if axis not in sizes:
                message = f"axis `{axis}` is on the right of the pattern only"
                raise site.fault("E130", message, help=suggest(axis, sizes))
            if sizes[axis] != size:
                raise site.fault("E130", f"axis `{axis}` is {sizes[axis]} on the left and {size} on the right")
    for axis in targets:
        if targets.count(axis) > 1:
            raise site.fault("E130", f"axis `{axis}` occurs twice on the right of the pattern")
