"""Lowers reads to torch: views, slices with padding, and gathers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ...syntax.ast import Expr, Number, Read
from ..equations.term import affine, dim_axes, interval
from .division import Window
from .torch_term import Argument, Range, Sort, Term, align, infix, number, permute, split, torch_call, union
from .torch_term import within as lies_within
from .value_lowering import Space


@dataclass(frozen=True)
class _Plain:
    """The dimension is read in full by these axes."""

    axes: tuple[str, ...]


@dataclass(frozen=True)
class _Slice:
    """Positions start, start + step, …, one per position of the axis. Without an axis, the one position `start`."""

    axis: str | None
    start: int
    step: int
    count: int
    extent: int


@dataclass(frozen=True)
class _Gather:
    """A tensor of positions clamped to the local dimension, and a mask of the positions inside it (None: all)."""

    place: Term
    inside: Term | None = None


_Index = _Plain | _Slice | _Gather


def read_term(space: Space, read: Read) -> Term:
    """A read as a tensor over the axes of its indices."""
    variable, operand = space.variables[read.tensor]
    sort = space.sorts.get(read.tensor, Sort.FLOAT if operand.integer_range is None else Sort.INT)
    term = replace(variable, sort=sort)
    term = term.method("detach") if space.detached and sort is Sort.FLOAT else term
    extents = [prod(space.sizes[axis] for axis in dim) for dim in operand.dims]
    held = [prod(space.local[axis] for axis in dim) for dim in operand.dims]
    indices: list[_Index] = []
    for place, (index, extent) in enumerate(zip(read.index, extents, strict=True)):
        window = space.windows.get((read.tensor, place))
        if window is None:
            indices.append(_index(space, index, extent, held[place], read.fill))
        else:
            held[place] = window.length
            indices.append(_windowed(space, index, extent, window, read.fill))
    piece = replace(term, axes=tuple(map(str, range(len(indices)))))
    piece, indices = _split(space, piece, indices, held)
    gathers = [place for place, index in enumerate(indices) if isinstance(index, _Gather)]
    if not gathers:
        return _diagonal(_sliced(space, piece, indices, read.fill))
    found = _gathered(space, piece, indices, gathers)
    inside = [index.inside for index in indices if isinstance(index, _Gather) and index.inside is not None]
    if not inside or read.fill is None:
        return found
    condition = inside[0]
    for other in inside[1:]:
        condition = infix("&", condition, other, Sort.BOOL, space.order)
    return space.select(condition, found, space.piece(read.fill))


def _index(space: Space, index: Expr, extent: int, held: int, fill: Expr | None) -> _Index:
    axes = dim_axes(index, space.sizes)
    whole = axes is not None and prod(space.sizes[axis] for axis in axes) == extent
    if axes is not None and whole and not set(axes) & set(space.bound):
        if prod(space.local[axis] for axis in axes) != held:
            raise ValueError(f"dimension of {held} local positions is read over {axes}, which are divided otherwise")
        return _Plain(axes)
    if axes is not None and whole:
        return _Gather(_merged(space, axes))
    if held != extent:
        raise ValueError("a divided dimension is read by an index that is not its own axis")
    form = affine(index, space.sizes)
    if form is not None and len(form.axes) <= 1 and not set(form.axes) & set(space.bound):
        axis, step = next(iter(form.coefficients.items()), (None, 1))
        count = 1 if axis is None else space.sizes[axis]
        last = form.constant + step * (count - 1)
        overlap = min(last, extent - 1) - max(form.constant, 0)
        fits = form.constant >= 0 and last < extent
        padded = isinstance(fill, Number) and step == 1 and axis is not None and overlap >= 0
        if step > 0 and (axis is None or space.local[axis] == count) and (fits or padded):
            return _Slice(axis, form.constant, step, count, extent)
    return _clamped(space, index, extent)


def _windowed(space: Space, index: Expr, extent: int, window: Window, fill: Expr | None) -> _Index:
    """A position in the window that a device holds around its slice: the global position minus the window's start.

    The slices of the axis and of the dimension advance together, so the device's number cancels. Positions in the
    axis's local slice map to positions in the window. The window holds 0 outside of the dimension; any other fill is
    selected.
    """
    form = affine(index, space.sizes)
    assert form is not None, "a window is read at affine positions"
    constant = form.constant - window.start
    outside = [c * (space.sizes[axis] - 1) for axis, c in form.coefficients.items()]
    inside = form.constant + sum(map(min, outside, [0] * len(outside))) >= 0
    inside = inside and form.constant + sum(map(max, outside, [0] * len(outside))) < extent
    filled = inside or fill is None or (isinstance(fill, Number) and fill.value == 0)
    if filled and len(form.axes) == 1 and not set(form.axes) & set(space.bound):
        ((axis, step),) = form.coefficients.items()
        return _Slice(axis, constant, step, space.local[axis], window.length)
    place = number(constant)
    for axis, step in form.coefficients.items():
        here = space.bound[axis].place if axis in space.bound else space.offset(axis)
        scaled = here if step == 1 else space.arithmetic("*", [here, number(step)])
        place = scaled if place.value == 0 else space.arithmetic("+", [scaled, place])
    if filled:
        return _Gather(place)
    return _Gather(place, lies_within(space.keep("at", space.piece(index)), 0, extent))


def _merged(space: Space, axes: Sequence[str]) -> Term:
    """The position in a dimension whose axes are partly set by guards, computed at local sizes."""
    place = number(0)
    for axis in axes:
        here = space.bound[axis].place if axis in space.bound else space.offset(axis)
        scaled = space.arithmetic("*", [place, number(space.local[axis])])
        place = here if place.value == 0 else space.arithmetic("+", [scaled, here])
    return place


def _clamped(space: Space, index: Expr, extent: int) -> _Gather:
    place = space.piece(index)
    low, high = interval(index, space.sizes)
    if low >= 0 and high < extent:
        return _Gather(place)
    if place.sort is Sort.NUMBER:
        place = torch_call("torch.tensor", place, device=space.device)
    place = space.keep("at", replace(place, sort=Sort.INT))
    inside = space.keep("inside", lies_within(place, 0, extent))
    return _Gather(place.method("clamp", 0, extent - 1), inside)


def _split(space: Space, piece: Term, indices: Sequence[_Index], held: Sequence[int]) -> tuple[Term, list[_Index]]:
    """Splits merged dimensions into one per axis, and drops those without axes."""
    if all(not isinstance(index, _Plain) or len(index.axes) == 1 for index in indices):
        return piece, list(indices)
    groups: list[list[int]] = []
    found: list[_Index] = []
    for index, extent in zip(indices, held, strict=True):
        if isinstance(index, _Plain):
            groups.append([space.local[axis] for axis in index.axes])
            found += [_Plain((axis,)) for axis in index.axes]
        else:
            groups.append([extent])
            found.append(index)
    return split(piece, groups), found


def _sliced(space: Space, piece: Term, indices: Sequence[_Index], fill: Expr | None) -> Term:
    """Applies slices and padding. The axes of the result may repeat."""
    parts: list[Argument] = []
    axes: list[str] = []
    padding: list[tuple[int, int]] = []
    for index in indices:
        if isinstance(index, _Plain):
            parts.append(Range())
            axes += index.axes
            padding.append((0, 0))
            continue
        assert isinstance(index, _Slice)
        if index.axis is None:
            parts.append(index.start)
            continue
        before, after = max(0, -index.start), max(0, index.start + index.count - index.extent) if index.step == 1 else 0
        parts.append(_range(index, before, after))
        axes.append(index.axis)
        padding.append((before, after))
    while parts and parts[-1] == Range():
        parts.pop()
    piece = piece.at(parts, axes) if parts else replace(piece, axes=tuple(axes))
    if any(pad != (0, 0) for pad in padding):
        assert isinstance(fill, Number)
        sides = [side for pad in reversed(padding) for side in pad]
        while sides[-2:] == [0, 0]:
            del sides[-2:]
        value = {} if fill.value == 0 else {"value": number(fill.value)}
        return torch_call("F.pad", piece, tuple(sides), axes=axes, sort=piece.sort, **value)
    return piece


def _range(index: _Slice, before: int, after: int) -> Range:
    """The part of a slice that lies inside the dimension."""
    start = index.start + before
    stop = index.start + index.step * (index.count - 1) + 1 - after
    return Range(start or None, stop if stop < index.extent else None, None if index.step == 1 else index.step)


def _diagonal(piece: Term) -> Term:
    """Turns an axis that occurs twice into a diagonal, which torch puts last."""
    for axis in dict.fromkeys(piece.axes):
        while piece.axes.count(axis) > 1:
            first = piece.axes.index(axis)
            second = piece.axes.index(axis, first + 1)
            axes = (*(name for place, name in enumerate(piece.axes) if place not in (first, second)), axis)
            piece = torch_call(".diagonal", piece, axes=axes, sort=piece.sort, dim1=first, dim2=second)
    return piece


def _gathered(space: Space, piece: Term, indices: Sequence[_Index], gathers: Sequence[int]) -> Term:
    """Gathers rows by one index tensor, single elements along one dimension, or everything by index tensors."""
    plain = [index.axes[0] for index in indices if isinstance(index, _Plain)]
    if len(gathers) == 1 and len(plain) == len(indices) - 1 and len(set(plain)) == len(plain):
        (dim,) = gathers
        gather = indices[dim]
        assert isinstance(gather, _Gather)
        rows = gather.place
        if not set(rows.axes) & set(plain) and rows.axes:
            return piece.at([*[Range()] * dim, rows], (*plain[:dim], *rows.axes, *plain[dim:]))
        new = [axis for axis in rows.axes if axis not in plain]
        if set(plain) <= set(rows.axes) and len(new) <= 1:
            rows = permute(rows, [*plain[:dim], *new, *plain[dim:]])
            if new:
                return piece.method("take_along_dim", rows, dim, axes=rows.axes)
            rows = align(rows, [*plain[:dim], "", *plain[dim:]], leading=True)
            taken = piece.method("take_along_dim", rows, dim, axes=rows.axes)
            return taken.method("squeeze", dim, axes=plain)
    return _indexed(space, piece, indices)


def _indexed(space: Space, piece: Term, indices: Sequence[_Index]) -> Term:
    """Uses index tensors for all dimensions except those that only their own axis runs over: whole rows are moved."""
    axes_of = [_axes_of(index) for index in indices]
    found = [axis for axes in axes_of for axis in axes]
    # torch removes a dimension that is read at a single number before the others. Then every dimension gets an index
    # tensor.
    alone = [
        all(axes_of) and isinstance(index, _Plain) and found.count(axes[0]) == 1
        for index, axes in zip(indices, axes_of, strict=True)
    ]
    places = {n: _place(space, index) for n, (index, own) in enumerate(zip(indices, alone, strict=True)) if not own}
    axes = union(places.values(), space.order)
    parts: list[Argument] = [align(places[n], axes) if n in places else Range() for n in range(len(indices))]
    kept = [of[0] for of, own in zip(axes_of, alone, strict=True) if own]
    before, after = alone.index(False), alone[::-1].index(False)
    while parts[-1] == Range():
        parts.pop()
    if any(alone[before : len(alone) - after]):
        return piece.at(parts, (*axes, *kept))
    return piece.at(parts, (*kept[:before], *axes, *kept[before:]))


def _axes_of(index: _Index) -> tuple[str, ...]:
    match index:
        case _Plain(axes=axes):
            return axes
        case _Slice(axis=axis):
            return () if axis is None else (axis,)
        case _Gather(place=place):
            return place.axes


def _place(space: Space, index: _Index) -> Term:
    """The positions that an index takes, as a tensor over its axes."""
    match index:
        case _Plain(axes=(axis,)):
            return space.offset(axis)
        case _Slice(axis=None, start=start):
            return number(start)
        case _Slice(axis=str(axis), start=start, step=step):
            scaled = space.offset(axis) if step == 1 else space.arithmetic("*", [space.offset(axis), number(step)])
            return scaled if start == 0 else space.arithmetic("+", [scaled, number(start)])
        case _Gather(place=place):
            return place
    raise AssertionError(index)
