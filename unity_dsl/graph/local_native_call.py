"""The native call of an operator on one device's slices: its attributes there, and what it reads outside of them.

A device runs the declared operator at its local shapes and with other attributes. A padding shrinks by the part of it
that a window holds; a number of groups becomes the number of local groups. The attributes follow from the declared
indices and conditions. The operator at these attributes is then compared, equation by equation, with the original. If
the results differ by a factor only, as for a mean over a part of the positions, they are multiplied by it. No operator
is treated specially.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod

from ..index.axes.axis_classes import classify, local_native
from ..index.axes.axis_windows import Windowed, windowed
from ..index.axes.term_scales import ONE, NoScale, result_scales
from ..index.equations.instance import Equation, Instance, Kind
from ..index.equations.term import Affine, affine, children, dim_index, free_axes, interval, reads, substitute
from ..index.equations.where_conditions import Value, counts
from ..index.evaluation.native_calls import changed_in_place
from ..index.instantiation.instantiate import Shape, instantiate
from ..index.library import Library
from ..syntax.ast import Expr, Number, Read, Size
from ..syntax.diagnostic import InputError
from ..syntax.rational import plain_number
from .halo import HaloWindow
from .layout import PARTITION
from .local_operator import LocalOperator


@dataclass(frozen=True)
class LocalCall:
    """A native call on one device. `outside` are the windows that hold 0 outside of the dimension, with the value that
    is to be read there. The result is to be multiplied by `factor`. `unpadded` is the operator that is called instead,
    on operands without padding.
    """

    attributes: Mapping[str, Value]
    outside: tuple[tuple[HaloWindow, Value], ...] = ()
    factor: Fraction = ONE
    unpadded: Instance | None = None


def local_call(instance: Instance, typed: LocalOperator, library: Library) -> LocalCall | None:
    """The operator's native call on one device; None if none is known to compute what the equations do there."""
    if not instance.native or instance.operator.torch is None:
        return None
    if instance.unpadded is not None:
        return _without_padding(instance, instance.unpadded, typed, library)
    if typed.native:
        return LocalCall(instance.attributes)
    if (
        typed.inner
        or instance.evaluation
        or changed_in_place(instance.operator.torch)
        or any(by != PARTITION for by in typed.cuts.values())
    ):
        return None
    classes = dict(classify(instance, library))
    around = {window.axis for window in typed.windows}
    for axis, found in windowed(instance, library).items() if around else ():
        if axis in around:
            assert isinstance(found, Windowed)
            classes[axis] = found.entry
    if any(classes[axis].positional or classes[axis].inner for axis in typed.divided):
        return None
    sized = any(classes[axis].sized for axis in typed.divided)
    if sized and (typed.windows or instance.whole or len(instance.outputs) > 1):
        return None
    counted = list(counts(instance.operator.conditions, instance.attributes))
    attributes = dict(instance.attributes) | {
        n: typed.local_sizes[axis] for n, axis in counted if axis in typed.divided
    }
    for window in typed.windows:
        if window.start and not (changed := _changed(instance, window, attributes)):
            return None
        attributes |= changed if window.start else {}
    if (outside := _outside(instance, typed.windows)) is None:
        return None
    fixed = {axis for _, axis in counted} | {window.axis for window in typed.windows}
    alike = {axis for axis in typed.divided if axis not in fixed and local_native(instance, library, (axis,))}
    sizes = {axis: instance.sizes[axis] if axis in alike else size for axis, size in typed.local_sizes.items()}
    windows = {(window.operand, window.dim): window for window in typed.windows}
    local = _local(instance, sizes, windows, attributes)
    if local is None:
        return None
    if sized:
        factor = _factor(instance, local)
        return None if factor is None else LocalCall(attributes, outside, factor)
    return LocalCall(attributes, outside) if _agrees(instance, local, windows) else None


def _without_padding(
    instance: Instance, unpadded: Instance, typed: LocalOperator, library: Library
) -> LocalCall | None:
    """The call on operands without padding; None if there is none, or if an axis with left-out padding is divided."""
    if not left_out(instance).isdisjoint(typed.divided):
        return None
    found = local_call(unpadded, at_sizes_of(unpadded, typed), library)
    return None if found is None else replace(found, unpadded=unpadded)


def left_out(instance: Instance) -> frozenset[str]:
    """The axes whose padding an operator leaves out."""
    assert instance.unpadded is not None
    return frozenset(axis for axis, size in instance.unpadded.sizes.items() if size != instance.sizes[axis])


def at_sizes_of(unpadded: Instance, typed: LocalOperator) -> LocalOperator:
    """A device's part of an operator, with undivided axes at the sizes of the operator without padding."""
    return replace(
        typed, local_sizes={**typed.local_sizes, **{a: n for a, n in unpadded.sizes.items() if a not in typed.divided}}
    )


# ---------------------------------------------------------------------------------------------- attributes


def _changed(instance: Instance, window: HaloWindow, attributes: Mapping[str, Value]) -> dict[str, Value]:
    """The first attribute, with a new value, that turns positions in the dimension into positions in the window. Empty
    if there is none.
    """
    for index in _declared(instance, window):
        form = _form(index, attributes, instance.sizes)
        for name in free_axes(index) if form is not None else ():
            if isinstance(attributes.get(name), int):
                other = _form(index, {**attributes, name: attributes[name] + 1}, instance.sizes)
                assert form is not None
                slope = (
                    0 if other is None or other.coefficients != form.coefficients else other.constant - form.constant
                )
                if slope and window.start % slope == 0 and (value := attributes[name] - window.start // slope) >= 0:
                    return {name: value}
    return {}


def _declared(instance: Instance, window: HaloWindow) -> Iterator[Expr]:
    """The index expressions of the dimension in the declaration, in which attributes still have their names."""
    (declared,) = (tensor for tensor in instance.operator.inputs if tensor.name == window.operand)
    dimensions = declared.dimensions
    rests = [place for place, axes in enumerate(dimensions) if axes[0].rest]
    rank = len(instance.operand(window.operand).dims)
    dim = window.dim if not rests or window.dim < rests[0] else len(dimensions) - rank + window.dim
    if len(rests) <= 1 and dim not in rests and len(dimensions[dim]) == 1:
        place = sum(map(len, dimensions[:dim]))
        for statement in instance.operator.statements:
            yield from (read.index[place] for read in reads(statement.value) if read.tensor == window.operand)


def _form(index: Expr, attributes: Mapping[str, Value], sizes: Mapping[str, int]) -> Affine | None:
    return affine(substitute(index, {name: Number(value) for name, value in attributes.items()}), sizes)


# ---------------------------------------------------------------------------------------------- what lies outside


def _outside(instance: Instance, windows: Sequence[HaloWindow]) -> tuple[tuple[HaloWindow, Value], ...] | None:
    """The windows that are not read as 0 outside the dimension, with the value there; None if it is no one number."""
    found = []
    for window in windows:
        extent = instance.shape(instance.operand(window.operand))[window.dim]
        fills = set()
        for equation in instance.equations:
            for read in reads(equation.value):
                if read.tensor == window.operand:
                    low, high = interval(read.index[window.dim], instance.sizes)
                    fills |= {read.fill} if low < 0 or high >= extent else set()
        values = {plain_number(fill.value) if isinstance(fill, Number) else None for fill in fills}
        if len(values) > 1 or None in values:
            return None
        found += [(window, value) for value in values if value]
    return tuple(found)


# ---------------------------------------------------------------------------------------------- comparison


def _local(
    instance: Instance,
    sizes: Mapping[str, int],
    windows: Mapping[tuple[str, int], HaloWindow],
    attributes: Mapping[str, Value],
) -> Instance | None:
    """The declared operator at the shapes of a device; None if it does not have these `sizes` there.

    Axes on which no torch call depends may have the sizes of the whole operator: the equations are the same at every
    size.
    """
    shapes = []
    for operand in instance.inputs:
        own = [
            window.length if (window := windows.get((operand.name, place))) else prod(sizes[axis] for axis in dim)
            for place, dim in enumerate(operand.dims)
        ]
        shapes.append(Shape(tuple(own), operand.integer_range))
    local = _at(instance.kind, tuple(shapes), tuple((name, type(value), value) for name, value in attributes.items()))
    return None if local is None or any(sizes[axis] != size for axis, size in local.sizes.items()) else local


def _agrees(instance: Instance, local: Instance, windows: Mapping[tuple[str, int], HaloWindow]) -> bool:
    """Whether the operator at the shapes of a device has the equations that the device has to compute."""
    comparison = _Comparison(instance, local.sizes, windows)
    return len(local.equations) == len(instance.equations) and all(
        comparison.same_equation(whole, part) for whole, part in zip(instance.equations, local.equations, strict=True)
    )


def _factor(instance: Instance, local: Instance) -> Fraction | None:
    """The factor of the result of an operator at the shapes of a device; None if it is no one number.

    A mean over a part of the positions, for example, divides by fewer of them.
    """
    if len(local.equations) != len(instance.equations):
        return None
    shorter = [axis for axis, size in instance.sizes.items() if local.sizes[axis] != size]
    try:
        scales = result_scales(instance, local, shorter, {operand.name: ONE for operand in instance.inputs})
    except NoScale:
        return None
    (output,) = instance.outputs
    return 1 / (scales[output.name] or ONE)


@lru_cache(maxsize=16384)
def _at(kind: Kind, shapes: tuple[Shape, ...], attributes: tuple[tuple[str, type, Value], ...]) -> Instance | None:
    """An operator at other shapes and with other attributes; None if these do not fit."""
    try:
        return instantiate(kind.instance.operator, shapes, {name: value for name, _, value in attributes})
    except InputError:
        return None


@dataclass(frozen=True)
class _Comparison:
    """Compares terms over whole tensors with terms over a device's tensors, in whose windows positions are shifted."""

    instance: Instance
    local: Mapping[str, int]
    windows: Mapping[tuple[str, int], HaloWindow]

    def same_equation(self, whole: Equation, part: Equation) -> bool:
        heads = [(e.target, e.kind, e.over, e.ties) for e in (whole, part)]
        return heads[0] == heads[1] and self.same(whole.value, part.value)

    def same(self, whole: Expr, part: Expr) -> bool:
        match whole, part:
            case Read(tensor, index, fill), Read(other, other_index, other_fill):
                same = tensor == other and (fill is None) == (other_fill is None)
                same = same and (fill is None or other_fill is None or self.same(fill, other_fill))
                places = enumerate(zip(index, other_index, strict=True)) if same else ()
                return same and all(self.same_place(tensor, place, *pair) for place, pair in places)
            case Size(name), Size():
                return whole == part and self.instance.sizes[name] == self.local[name]
        parts = children(whole), children(part)
        if type(whole) is not type(part) or len(parts[0]) != len(parts[1]):
            return False
        if not parts[0]:
            return whole == part
        alike = getattr(whole, "function", None) == getattr(part, "function", None)
        return alike and all(self.same(a, b) for a, b in zip(*parts, strict=True))

    def same_place(self, tensor: str, place: int, whole: Expr, part: Expr) -> bool:
        window = self.windows.get((tensor, place))
        if window is None:
            own = dim_index(self.instance.operand(tensor).dims[place])
            return whole == part == own or self.same(whole, part)
        form, local = affine(whole, self.instance.sizes), affine(part, self.local)
        if form is None or local is None or form.coefficients != local.coefficients:
            return False
        return local.constant == form.constant - window.start
