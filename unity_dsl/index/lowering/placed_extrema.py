"""Lowers extrema of guarded values at data-dependent positions: to gathers, and to scatters that keep the extremum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...syntax.ast import ReductionKind
from ..equations.guarded_extrema import EMPTY
from ..equations.loop_nest import LoopNest
from .division import InnerReduce
from .sum_lowering import Sum, reduced
from .torch_term import Argument, Range, Sort, Term, align, number, permute, torch_call, word
from .value_lowering import Space


def placed_extremum(nest: LoopNest, space: Space, inner: InnerReduce | None) -> Term:
    """The greatest or least of the values that guards leave, also over a group of devices if `inner` is given.

    Ties share the gradient, as they do in torch's `scatter_reduce`.
    """
    kind = nest.equation.kind
    assert kind is not None
    guards, empty = Sum(nest, space), number(EMPTY[kind])
    masks = [mask for found in (*nest.looked_up, *nest.placed) for mask in guards.determined(found)]
    at = {axis for found in nest.placed for axis in space.bound[found.axis].place.axes}
    space.order = tuple(sorted(nest.equation.space, key=lambda axis: axis not in at))
    value = space.tensor(space.piece(nest.factors[0]))
    for mask in masks:
        value = space.function("torch.where", [mask, value, empty])
    over = [axis for axis in nest.over if axis not in at and axis in value.axes]
    if nest.placed:
        value = reduced(value, kind.value, over) if over else value
        return permute(_Places(nest, space, at).scattered(value, kind, inner), nest.equation.target.axes)
    if inner is not None:
        return _over_devices(value, over, inner, kind, detached=space.detached)
    return reduced(value, kind.value, over) if over else value


def _over_devices(value: Term, over: Sequence[str], inner: InnerReduce, kind: ReductionKind, *, detached: bool) -> Term:
    """The extremum over local dimensions and a group of devices. Without local dimensions, one of length 1 is added."""
    kept = tuple(axis for axis in value.axes if axis not in over)
    dims = tuple(value.axes.index(axis) for axis in over)
    if not over:
        value, dims = value.at([None], kept), (0,)
    return Term("reduce_over", (value, dims, inner.axes, kind.value, detached), kept)


class _Places:
    """The positions of values in the result.

    The dimensions `first` of the result are set by positions or shared with them, and are flattened into one. The
    `sources`, the axes that positions depend on, are flattened into one as well. Flattened terms keep the names of all
    these axes.
    """

    def __init__(self, nest: LoopNest, space: Space, at: set[str]) -> None:
        self.space = space
        target = nest.equation.target.axes
        bound = {found.axis: space.bound[found.axis].place for found in nest.placed}
        self.first = tuple(axis for axis in target if axis in bound or axis in at)
        self.rest = tuple(axis for axis in target if axis not in self.first)
        self.sources = tuple(axis for axis in space.order if axis in at)
        place = number(0)
        for axis in self.first:
            major = space.arithmetic("*", [place, number(space.local[axis])])
            here = bound[axis] if axis in bound else space.offset(axis)
            place = here if place.value == 0 else space.arithmetic("+", [major, here])
        self.place = space.keep("place", self.flat(place, ())) if len(self.first) > 1 else place

    def flat(self, term: Term, rest: Sequence[str]) -> Term:
        """A term over all sources, flattened into one dimension, and the axes `rest`."""
        axes = (*self.sources, *rest)
        if set(term.axes) != set(axes):
            sizes = [self.space.local[axis] for axis in axes]
            term = align(term, axes, leading=True).method("expand", *sizes, axes=axes)
        end = (len(self.sources) - 1,) if rest else ()
        term = permute(term, axes)
        return term.method("flatten", 0, *end) if len(self.sources) > 1 else term

    def scattered(self, value: Term, kind: ReductionKind, inner: InnerReduce | None) -> Term:
        space = self.space
        values, dtype = self.flat(value, self.rest), space.dtype
        if not space.detached and not space.whole:
            # Ties are counted in the type of the values, and bfloat16 counts only up to 256.
            values, dtype = space.keep("values", _to(values, space.wide)), space.wide
        if inner is None:
            found = self.extremum(values, kind, dtype)
        elif space.detached:
            found = _over_devices(self.extremum(values, kind, dtype), (), inner, kind, detached=True)
        else:
            local = self.extremum(values.method("detach"), kind, dtype)
            found = self.shared(_over_devices(local, (), inner, kind, detached=True), values, dtype, inner)
        if dtype is not space.dtype:
            found = _to(found, space.dtype)
        sizes = tuple(space.local[axis] for axis in self.first)
        return found.method("unflatten", 0, sizes) if len(sizes) > 1 else found

    def filled(self, value: float, dtype: Term) -> Term:
        """A result with this number at every place."""
        space = self.space
        shape = (prod(space.local[axis] for axis in self.first), *(space.local[axis] for axis in self.rest))
        axes = (*self.first, *self.rest)
        return torch_call("torch.full", shape, number(value), axes=axes, dtype=dtype, device=space.device)

    def extremum(self, values: Term, kind: ReductionKind, dtype: Term) -> Term:
        """The extremum at each place; the neutral element where there are no values."""
        name = word('"amax"' if kind is ReductionKind.MAX else '"amin"')
        return self.filled(EMPTY[kind], dtype).method("scatter_reduce", 0, self.index(values), values, name)

    def index(self, values: Term) -> Term:
        """The place of every element."""
        if not self.rest:
            return self.place
        parts: list[Argument] = [Range(), *(None for _ in self.rest)]
        return self.place.at(parts, values.axes).method("expand_as", values)

    def shared(self, found: Term, values: Term, dtype: Term, inner: InnerReduce) -> Term:
        """The extremum over all devices.

        Its gradient goes in equal shares to the values on any device that attain it.
        """
        space, axes = self.space, values.axes
        found = space.keep("found", found)
        hit = space.keep("hit", Term("==", (values.method("detach"), found.at([self.place], axes)), axes, Sort.BOOL))
        counted = self.filled(0, dtype).method("scatter_add", 0, self.index(values), _to(hit, dtype))
        count = space.keep("count", Term("reduce", (counted, inner.axes), found.axes))
        taken = torch_call("torch.where", hit, values, number(0), axes=axes)
        share = Term("/", (taken, count.at([self.place], axes)), axes)
        total = space.keep("share", self.filled(0, dtype).method("scatter_add", 0, self.index(values), share))
        # The added term is 0 and contributes the gradient alone.
        return Term("+", (found, Term("-", (total, total.method("detach")), total.axes)), found.axes)


def _to(term: Term, dtype: Term) -> Term:
    return Term(".to", (term, dtype), term.axes, Sort.FLOAT)
