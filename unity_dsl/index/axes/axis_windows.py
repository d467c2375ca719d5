"""Finds windows of reads, `x[p * stride + r - pad else 0]`, and the halo that a slice of p needs.

Such an axis can be divided if every device has its own slice of the dimension and the neighbouring positions that it
reads. Slices must be aligned: e positions of the axis on a device need step * e positions of the dimension there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ...syntax.ast import Expr
from ..equations.instance import Instance, Key, Operand
from ..equations.term import affine, dim_axes, free_axes, reads
from ..library import Library
from .axis_classes import AxisClass, AxisKind, classify


@dataclass(frozen=True)
class Reach:
    """The reads of an input's dimension along an axis: at `step * axis + rest`, low <= rest <= high."""

    operand: str
    dim: int
    step: int
    low: int
    high: int


@dataclass(frozen=True)
class Windowed:
    """An axis that can be divided given halos: its class then, and the reach of each dimension read around it."""

    entry: AxisClass
    reaches: tuple[Reach, ...]

    def reach(self, operand: str) -> Reach | None:
        return next((reach for reach in self.reaches if reach.operand == operand), None)


def windowed(instance: Instance, library: Library) -> Mapping[str, Windowed | str]:
    """Every axis around which some dimension is read; a text instead is the reason why it cannot be divided."""
    return _windowed(instance.identity, library)


@lru_cache(maxsize=4096)
def _windowed(identity: Key, library: Library) -> Mapping[str, Windowed | str]:
    instance = identity.instance
    found: dict[str, Windowed | str] = {}
    around = _around(instance)
    for axis in filter(around.get, instance.axes):
        places = tuple(around[axis])
        try:
            reaches = tuple(_reach(instance, axis, tensor, dim) for tensor, dim in places)
            _check_apart(instance, axis, reaches)
        except _Refused as refused:
            found[axis] = str(refused)
            continue
        entry = classify(instance, library, frozenset(places))[axis]
        found[axis] = entry.reason if entry.kind is AxisKind.BLOCKED else Windowed(_said(entry), reaches)
    return found


class _Refused(Exception):
    """Why an axis cannot be divided."""


def _said(entry: AxisClass) -> AxisClass:
    return replace(entry, reason=f"{entry.reason}, and at its neighbours")


def _around(instance: Instance) -> dict[str, dict[tuple[str, int], None]]:
    """By axis, the dimensions read at an index that contains the axis and is not a bare or merged one, in order."""
    found: dict[str, dict[tuple[str, int], None]] = {}
    for equation in (*instance.equations, *instance.evaluation):
        for read in reads(equation.value):
            own = instance.operand(read.tensor).dims
            for place, (index, dim) in enumerate(zip(read.index, own, strict=True)):
                if dim_axes(index, instance.sizes) != dim:
                    for axis in free_axes(index):
                        found.setdefault(axis, {})[read.tensor, place] = None
    return found


def _reach(instance: Instance, axis: str, tensor: str, dim: int) -> Reach:
    """The reach of a dimension. Raises _Refused if its reads do not have one step along the axis."""
    operand = instance.operand(tensor)
    if operand not in instance.inputs:
        raise _Refused(f"`{tensor}`, which the operator computes itself, is read at neighbours of `{axis}`")
    if len(operand.dims[dim]) != 1:
        raise _Refused(f"a merged dimension of `{tensor}` is read at neighbours of `{axis}`")
    steps, lows, highs = set(), [], []
    for index in _indices(instance, tensor, dim):
        form = affine(index, instance.sizes)
        step = 0 if form is None else form.coefficients.get(axis, 0)
        if form is None or step < 1:
            raise _Refused(f"a dimension of `{tensor}` is also read at positions that do not grow with `{axis}`")
        others = [c * (instance.sizes[name] - 1) for name, c in form.coefficients.items() if name != axis]
        steps.add(step)
        lows.append(form.constant + sum(min(0, reach) for reach in others))
        highs.append(form.constant + sum(max(0, reach) for reach in others))
    if len(steps) > 1:
        raise _Refused(f"a dimension of `{tensor}` is read in steps of {' and '.join(map(str, sorted(steps)))}")
    (step,) = steps
    (own,) = operand.dims[dim]
    size, extent = instance.sizes[axis], instance.sizes[own]
    if extent != step * size:
        raise _Refused(
            f"{size} positions of `{axis}` in steps of {step} are not the {extent} of a dimension of `{tensor}`: "
            "slices of the two would drift apart"
        )
    return Reach(tensor, dim, step, min(lows), max(highs))


def _indices(instance: Instance, tensor: str, dim: int) -> Iterator[Expr]:
    for equation in (*instance.equations, *instance.evaluation):
        yield from (read.index[dim] for read in reads(equation.value) if read.tensor == tensor)


def _check_apart(instance: Instance, axis: str, reaches: Iterable[Reach]) -> None:
    """Checks that each tensor has one windowed dimension, whose own axis occurs nowhere else. Raises _Refused."""
    windows: dict[str, set[int]] = {}
    for reach in reaches:
        windows.setdefault(reach.operand, set()).add(reach.dim)
    for tensor, dims in windows.items():
        others = {d for d, names in enumerate(instance.operand(tensor).dims) if axis in names} - dims
        if len(dims) + len(others) > 1:
            raise _Refused(f"`{axis}` is in {len(dims) + len(others)} dimensions of `{tensor}`")
    own = {instance.operand(reach.operand).dims[reach.dim][0] for reach in reaches} - {axis}
    for name in own:
        if name in instance.axes or any(_has_besides(operand, name, windows) for operand in instance.inputs):
            raise _Refused(f"`{name}`, which is read around `{axis}`, is an axis of something else too")


def _has_besides(operand: Operand, axis: str, windows: Mapping[str, set[int]]) -> bool:
    return any(axis in dim and number not in windows.get(operand.name, ()) for number, dim in enumerate(operand.dims))
