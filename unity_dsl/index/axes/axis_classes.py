"""Classifies each axis of an operator: mapped, summed, declared or blocked, with the reason.

An axis may be divided over devices if every read that involves it is at the bare axis of a dimension. A slice of the
result then depends only on that slice of the operand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from ...syntax.ast import Expr, Name, Read, ReductionKind, Size, Ties, Uniform
from ..equations.instance import Equation, Instance, Kind, Operand
from ..equations.term import children, dim_axes, free_axes, reads, walk
from ..equations.where_conditions import counts
from ..evaluation.native_calls import native_names
from ..gradients.independence import gradient_free
from ..library import Library
from .linearity import linear_operands

__all__ = ["AxisClass", "AxisKind", "classify", "gradient_free", "linear_operands", "local_native"]


class AxisKind(StrEnum):
    MAPPED = "mapped"
    SUMMED = "summed"
    DECLARED = "declared"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class AxisClass:
    """The class of an axis of an operator.

    `positional`: its index is used as a value, so that a slice adds its offset. `sized`: its length is used as a value,
    always the global one. `inner`: an intermediate's equation reduces it, or a reduction other than a sum; dividing it
    then needs a collective inside the operator. `reason` explains the class to a reader.
    """

    axis: str
    kind: AxisKind
    reason: str
    positional: bool = False
    sized: bool = False
    inner: bool = False


Places = Collection[tuple[str, int]]
"""Dimensions of tensors, by name and number."""


def classify(instance: Instance, library: Library, haloed: Places = ()) -> Mapping[str, AxisClass]:
    """The class of every axis: axes of equations in order, then axes of operands alone.

    `haloed` are dimensions of which every device has all elements that it reads.
    """
    return _classify(instance.kind, frozenset(haloed))


@lru_cache(maxsize=4096)
def _classify(kind: Kind, haloed: frozenset[tuple[str, int]]) -> Mapping[str, AxisClass]:
    instance = kind.instance
    if instance.extern:
        return dict(_declared(instance))
    equations = (*instance.equations, *instance.evaluation)
    operands = _operands(instance)
    blocked = dict(_blocked(instance, operands, equations, haloed))
    positional = {axis for equation in equations for axis in _positional(equation.value)}
    sized = {node.name for equation in equations for node in walk(equation.value) if isinstance(node, Size)}
    sized -= _merged_sizes(instance, operands, equations)
    outputs = {output.name for output in instance.outputs}
    in_outputs = {axis for output in instance.outputs for axis in output.axes}
    run_over = {axis for equation in equations for axis in equation.space}
    inner = {
        axis
        for equation in equations
        for axis in equation.over
        if equation.target.name not in outputs or equation.kind is not ReductionKind.SUM
    }
    given = _counted(instance) | {axis for operand in instance.inputs for axis in operand.axes}
    given |= {axis for e in equations for read in reads(e.value) for part in read.index for axis in free_axes(part)}
    found = {}
    for axis in dict.fromkeys((*instance.axes, *(axis for operand in operands.values() for axis in operand.axes))):
        why_not = blocked.get(axis)
        if why_not is None and axis not in run_over:
            why_not = f"no statement runs over `{axis}`"
        if why_not is None and axis in positional and axis not in given:
            why_not = f"no operand has `{axis}`: its size is what a condition says, on every device"
        may, reason = _kind(axis, axis in in_outputs, axis in inner, why_not)
        found[axis] = AxisClass(axis, may, reason, axis in positional, axis in sized, axis in inner)
    return found


def _declared(instance: Instance) -> Iterator[tuple[str, AxisClass]]:
    """The declared axes of an extern operator; these are assumed, and nothing else is known."""
    for axis in dict.fromkeys(axis for operand in (*instance.inputs, *instance.outputs) for axis in operand.axes):
        if axis in instance.declared:
            reason = "declared, not proved: a slice of the operands gives that slice of the result"
            yield axis, AxisClass(axis, AxisKind.DECLARED, reason)
        else:
            reason = f"the declaration does not say that {instance.name} may be divided along `{axis}`"
            yield axis, AxisClass(axis, AxisKind.BLOCKED, reason)


def _operands(instance: Instance) -> dict[str, Operand]:
    """Inputs, intermediates and outputs by name, including those of the evaluation."""
    equations = (*instance.equations, *instance.evaluation)
    return {operand.name: operand for operand in (*instance.inputs, *(equation.target for equation in equations))}


def _counted(instance: Instance) -> set[str]:
    """The axes that bound the values of integer operands."""
    return {tensor.integer_range for tensor in instance.operator.inputs if tensor.integer_range is not None}


def _kind(axis: str, in_results: bool, inner: bool, why_not: str | None) -> tuple[AxisKind, str]:
    if why_not is not None:
        return AxisKind.BLOCKED, why_not
    if in_results and inner:
        return AxisKind.MAPPED, f"`{axis}` stays, and is reduced on the way: a collective inside the operator"
    if in_results:
        return AxisKind.MAPPED, f"every result at `{axis}` needs its operands at `{axis}` only"
    if inner:
        return AxisKind.SUMMED, f"`{axis}` is reduced before the end: a collective inside the operator"
    return AxisKind.SUMMED, f"the results are sums over `{axis}`: every device has some of the terms"


def _blocked(
    instance: Instance, operands: Mapping[str, Operand], equations: Sequence[Equation], haloed: Places
) -> Iterator[tuple[str, str]]:
    """Axes that cannot be divided, each with the reason."""
    outputs = {output.name for output in instance.outputs}
    for equation in equations:
        if equation.kind is not None and equation.target.integer_range is not None:
            for axis in equation.over:
                yield axis, f"`{equation.target.name}` holds integers, which are never terms of a sum"
        for read in reads(equation.value):
            own = operands[read.tensor].dims
            for place, (index, dim) in enumerate(zip(read.index, own, strict=True)):
                if dim_axes(index, instance.sizes) != dim and (read.tensor, place) not in haloed:
                    for axis in dict.fromkeys((*free_axes(index), *dim)):
                        yield axis, _why_not(axis, read, index)
            yield from _diagonal(operands[read.tensor])
            yield from _used_again(equations, read, outputs)
        if equation.ties is Ties.FIRST:
            for axis in equation.over:
                yield axis, f"of equal elements the first along `{axis}` has the gradient: a slice may have a later one"


def _diagonal(operand: Operand) -> Iterator[tuple[str, str]]:
    """A tensor is divided along one dimension per axis, so an axis in two of its dimensions is blocked."""
    for axis, count in Counter(operand.axes).items():
        if count > 1:
            yield axis, f"`{axis}` is {count} dimensions of `{operand.name}`: a slice of it would be a diagonal block"


def _used_again(equations: Sequence[Equation], read: Read, outputs: Collection[str]) -> Iterator[tuple[str, str]]:
    """Summed axes of a result that a statement reads: on each device it is only a partial sum."""
    for equation in equations:
        if equation.target.name == read.tensor and read.tensor in outputs and equation.kind is ReductionKind.SUM:
            for axis in equation.over:
                yield axis, f"the result `{read.tensor}` sums over `{axis}`, and another statement reads that sum"


def _why_not(axis: str, read: Read, index: Expr) -> str:
    others = [name for name in free_axes(index) if name != axis]
    where = f"dimension of `{read.tensor}`"
    if axis not in free_axes(index):
        return f"a {where} that has `{axis}` is read at other positions than its own"
    if others:
        return f"a {where} is read at positions that mix `{axis}` with `{others[0]}`: a slice needs its neighbours"
    return f"a {where} is read at a position computed from `{axis}`, not at `{axis}` itself"


def _positional(expr: Expr) -> Iterator[str]:
    """Axes whose index is used as a value: outside index positions of reads, or in a random number's position."""
    match expr:
        case Name(name=name):
            yield name
        case Uniform(index=index):
            for part in index:
                yield from free_axes(part)
        case Read(fill=fill):
            if fill is not None:
                yield from _positional(fill)
        case _:
            for child in children(expr):
                yield from _positional(child)


def _merged_sizes(instance: Instance, operands: Mapping[str, Operand], equations: Sequence[Equation]) -> set[str]:
    """Sizes that occur only in merged indices `h * |k| + k`, where each slice uses its local size."""
    inside: set[str] = set()
    outside: set[str] = set()
    for equation in equations:
        plain = [
            index
            for read in reads(equation.value)
            for index, own in zip(read.index, operands[read.tensor].dims, strict=True)
            if dim_axes(index, instance.sizes) == own
        ]
        hidden = {id(node) for index in plain for node in walk(index)}
        for node in walk(equation.value):
            if isinstance(node, Size):
                (inside if id(node) in hidden else outside).add(node.name)
    return inside - outside


def local_native(instance: Instance, library: Library, divided: tuple[str, ...]) -> bool:
    """Whether the torch call, on slices that divide these axes, computes what the equations do there.

    It does if it may replace the equations at all, and depends on no position, length or reduction of a divided axis.
    It also depends on lengths in conditions, unless a condition only equates a length with an attribute that the call
    does not name (`g == groups` if the call names `|g|`).
    """
    return _local_native(instance.kind, library, divided)


@lru_cache(maxsize=16384)
def _local_native(kind: Kind, library: Library, divided: tuple[str, ...]) -> bool:
    instance = kind.instance
    if not instance.native or instance.operator.torch is None:
        return False
    classes = classify(instance, library)
    named = native_names(instance.operator.torch)
    unnamed = {attribute.name for attribute in instance.operator.attributes} - named
    tied = set[str]()
    for condition in instance.operator.conditions:
        if not any(counts([condition], unnamed)):
            tied.update(free_axes(condition))
    return not any(
        classes[axis].positional or classes[axis].sized or classes[axis].inner or axis in tied for axis in divided
    )
