"""What an operator becomes on one device under a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod

from ..index.equations.instance import Instance, Operand
from ..index.evaluation.native_calls import asks_for_training
from ..index.library import Library
from ..index.lowering.division import Cut, Division
from ..index.lowering.execution import Execution, execute
from ..index.lowering.execution import Operand as LocalOperand
from ..index.lowering.operand_reuse import reusing
from ..index.lowering.operator_lowering import Lowering, lower_equations, lower_native
from ..index.lowering.torch_term import Sort, Term
from .declared_slices import cut_at
from .layout import PARTITION, Mesh
from .layout_typing import TypedOperator, type_operator
from .local_native_call import at_sizes_of, left_out, local_call
from .local_operator import LocalOperator


def training_lowering(instance: Instance, typed: LocalOperator, mesh: Mesh, library: Library) -> Lowering:
    """What an operator becomes in training. A native call with a training argument tells training from evaluation."""
    found, narrowed = local_call(instance, typed, library), frozenset[str]()
    called, own = instance, typed
    if found is not None and found.unpadded is not None:
        called, own, narrowed = found.unpadded, at_sizes_of(found.unpadded, typed), left_out(instance)
    division = division_of(called, own, mesh, library)
    if found is not None:
        lowering = lower_native(called, division, library, found.attributes, found.outside, found.factor, narrowed)
        return reusing(lowering, typed.reuse)
    if instance.extern:
        raise ValueError(f"{instance.name} is its native call, which does not stand for it here")
    return lower_equations(instance, division, library)


def differs_in_evaluation(instance: Instance, typed: LocalOperator, library: Library) -> bool:
    """Whether an operator becomes something else outside training."""
    if not instance.evaluation:
        return False
    native = instance.operator.torch
    return native is None or not asks_for_training(native) or local_call(instance, typed, library) is None


def evaluation_lowering(instance: Instance, typed: TypedOperator, mesh: Mesh, library: Library) -> Lowering | None:
    """What an operator becomes outside training; None if that is the same. Raises ValueError if layouts are not those
    of training.
    """
    if not differs_in_evaluation(instance, typed, library):
        return None
    evaluated = replace(instance, equations=instance.evaluation, evaluation=())
    again = type_operator(evaluated, typed.configuration, mesh, library)
    if isinstance(again, str):
        raise ValueError(f"{instance.name} outside training: {again}")
    if again.results != typed.results or again.arguments != typed.arguments:
        raise ValueError(f"{instance.name} outside training has other layouts than in training")
    return lower_equations(evaluated, division_of(evaluated, again, mesh, library), library)


def local_execution(
    instance: Instance,
    typed: LocalOperator,
    mesh: Mesh,
    library: Library,
    needs: Sequence[bool],
    width: int,
    strides: Sequence[tuple[int, ...] | None] | None = None,
) -> Execution:
    """The tensors that an operator builds in training on one device, and those saved for inputs that need a gradient.

    Floats have `width` bytes; inputs without `strides` are contiguous.
    """
    lowering = training_lowering(instance, typed, mesh, library)
    return execution_of_lowering(lowering, instance, typed, needs, width, strides)


def execution_of_lowering(
    lowering: Lowering,
    instance: Instance,
    typed: LocalOperator,
    needs: Sequence[bool],
    width: int,
    strides: Sequence[tuple[int, ...] | None] | None = None,
) -> Execution:
    """Like `local_execution`, for a known lowering."""
    windows = {(window.operand, window.dim): window.length for window in typed.windows}

    def local(operand: Operand, moves: bool = False, steps: tuple[int, ...] | None = None) -> LocalOperand:
        shape = [
            windows.get((operand.name, place)) or prod(typed.local_sizes[axis] for axis in dim)
            for place, dim in enumerate(operand.dims)
        ]
        return LocalOperand(tuple(shape), Sort.FLOAT if operand.integer_range is None else Sort.INT, moves, steps)

    given = zip(instance.inputs, needs, strides or [None] * len(needs), strict=True)
    inputs = [local(operand, needed, steps) for operand, needed, steps in given]
    return execute(lowering, inputs, [local(operand) for operand in instance.outputs], width)


def division_of(instance: Instance, typed: LocalOperator, mesh: Mesh, library: Library) -> Division:
    """The part of an operator that one device has."""
    cuts = {
        axis: tuple(_cuts(instance.sizes[axis], typed, axes, mesh, library)) for axis, axes in typed.divided.items()
    }
    return Division(typed.local_sizes, cuts, typed.windows, typed.inner)


def cuts_together(typed: LocalOperator, axes: Sequence[int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The ops that cut an axis of an operator, each with its mesh axes, major first.

    Blocks of blocks are blocks over all their devices, so adjacent mesh axes make one `partition`.
    """
    for by, along in groupby(axes, typed.cuts.__getitem__):
        if by == PARTITION:
            yield by, tuple(along)
        else:
            yield from ((by, (axis,)) for axis in along)


def _cuts(extent: int, typed: LocalOperator, axes: Sequence[int], mesh: Mesh, library: Library) -> Iterator[Cut]:
    """How an axis is cut along mesh axes, major first."""
    for by, together in cuts_together(typed, axes):
        degree = prod(mesh.axes[axis].degree for axis in together)
        yield declared_cut(by, degree, extent, Term("index", together), library)
        extent //= degree


def declared_cut(by: str, degree: int, extent: int, device: Term, library: Library) -> Cut:
    """A cut of `extent` positions by a declared op, for the device with this number. Raises ValueError if sizes do not
    fit.
    """
    cut = cut_at(library.parallels[by], degree, extent)
    if cut is None:
        raise ValueError(f"{by} cannot cut {extent} positions over {degree} devices")
    return Cut(degree, extent, device, cut.index, cut.local, cut.sizes, by == PARTITION)
