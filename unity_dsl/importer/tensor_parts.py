"""Handlers of torch operators that take tensors apart, join them, reduce them or reshape them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import torch
from torch import Tensor

from .operators import binary
from .translation import Entry, Translation, Unsupported, filled, handles, unary
from .views import Axis, Value, View


@handles("mean.default", "sum.default", "mean.dim", "sum.dim_IntList", "amax.default")
def _reduced(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    view, keep = walk.view(args[0]), (args[2] if len(args) > 2 else named.get("keepdim", False))
    named_dims = args[1] if len(args) > 1 and args[1] not in (None, []) else range(len(view.dims))
    word = str(walk.node.target)
    name = "reduce_mean" if "mean" in word else "reduce_max" if "amax" in word else "reduce_sum"
    return reduced(walk, name, view, named_dims, keep=keep)


def reduced(walk: Translation, name: str, view: View, dims: Iterable[int], *, keep: bool) -> View:
    """A reduction over dimensions, which keep one element or are removed."""
    view = walk.spread(view)
    gone = {dim % len(view.dims) for dim in dims}
    lost = {axis for place in gone for axis in view.dims[place]}
    if any(lost & {*dim} and not lost >= {*dim} for dim in view.base):
        view = walk.whole_view(view)
        lost = {axis for place in gone for axis in view.dims[place]}
    left = [place for place, dim in enumerate(view.base) if {*dim} - lost]
    given = View(view.value, view.base, view.base)
    made = walk.make(name, given, shape=[given.shape[place] for place in left], kept=" ".join(map(str, left)))
    axes = [axis for place in left for axis in view.base[place]]
    made = made.reshaped([axis.size for axis in axes])
    apart = dict(zip(axes, made.dims, strict=True))
    dims_left = [
        tuple(part for axis in dim if axis not in lost for part in apart[axis])
        for place, dim in enumerate(view.dims)
        if keep or place not in gone
    ]
    return made.arranged(dims_left)


@handles("cat.default")
def _concatenated(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    views = [walk.view(part) for part in args[0] if not (isinstance(part, Tensor) and not part.numel())]
    return joined(walk, views, (args[1] if len(args) > 1 else 0) % len(views[0].dims))


@handles("stack.default")
def _stacked(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    views = [walk.view(part) for part in args[0]]
    dim = (args[1] if len(args) > 1 else 0) % (len(views[0].dims) + 1)
    return joined(walk, [view.arranged([*view.dims[:dim], (), *view.dims[dim:]]) for view in views], dim)


@handles("slice_scatter.default")
def _placed_slice(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """A tensor in which another one replaces a slice."""
    x, source, dim, start, stop, step = filled(args, (None, None, 0, 0, None, 1))
    x, source = walk.view(x), walk.view(source)
    dim, size = dim % len(x.dims), x.shape[dim % len(x.dims)]
    first, last = (
        max((start or 0) + size * ((start or 0) < 0), 0),
        min(size if stop is None else stop % (size + 1), size),
    )
    last = size if stop is not None and stop >= size else last
    if step != 1:
        raise Unsupported(f"step {step}")
    parts = [part_of(walk, x, dim, 0, first)] if first else []
    parts += [source]
    parts += [part_of(walk, x, dim, last, size)] if last < size else []
    return joined(walk, parts, dim) if len(parts) > 1 else source


@handles("copy.default")
def _copied(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, source = args[0], walk.view(args[1])
    return source.expanded(x.shape if isinstance(x, View | Tensor) else x.example.shape)


def joined(walk: Translation, views: list[View], dim: int) -> View:
    """Concatenates views along a dimension; rows that are the same for all examples are prepended.

    The first views are joined first, so that a longer concatenation of the same views only adds the new ones.
    """
    views = [view for view in views if view.shape[dim]]
    if not any(view.repeated for view in views):
        made = views[0]
        for other in views[1:]:
            shape = [*made.shape]
            shape[dim] += other.shape[dim]
            made = walk.make("concat", made, other, shape=shape, dim=dim)
        return made
    made = views[-1]
    for other in reversed(views[:-1]):
        shared = {axis for part in other.dims[:-2] for axis in part}
        shape = [*made.shape]
        shape[dim] += other.shape[dim]
        if len(other.dims) > 2 and dim == len(other.dims) - 2 and other.repeated and other.repeated == shared:
            made = walk.make("prepend", walk.read_whole(made), other.arranged(other.dims[-2:]), shape=shape)
        else:
            made = walk.make("concat", walk.spread(other), walk.spread(made), shape=shape, dim=dim)
    return made


@handles("slice.Tensor")
def _sliced(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view, dim, start, stop, step = filled(args, (None, 0, 0, None, 1))
    view = walk.view(view)
    dim, size = dim % len(view.dims), view.shape[dim % len(view.dims)]
    first = min(max((start or 0) + size * ((start or 0) < 0), 0), size)
    last = size if stop is None else min(max(stop + size * (stop < 0), 0), size)
    if step == 1:
        return part_of(walk, view, dim, first, last)
    if size % step or last <= size - step or first >= step:
        raise Unsupported(f"step {step} from {first} to {last} of {size}")
    apart = walk.reshaped(view, (*view.shape[:dim], size // step, step, *view.shape[dim + 1 :]))
    part = part_of(walk, apart, dim + 1, first, first + 1)
    return part.arranged([*part.dims[: dim + 1], *part.dims[dim + 2 :]])


def part_of(walk: Translation, view: View, dim: int, first: int, last: int) -> View:
    if (first, last) == (0, view.shape[dim]):
        return view
    shape = [*view.shape[:dim], last - first, *view.shape[dim + 1 :]]
    if last <= first:
        return View(Value(tuple(shape)), (), tuple((Axis(size),) for size in shape))  # empty, which `joined` skips
    if set(view.dims[dim]) & view.repeated and not set(view.dims[dim]) <= view.repeated:
        view = walk.spread(view)
    if not view.repeated:
        return walk.make("slice", view, shape=shape, dim=dim, start=first, stop=last)
    if view.dims[dim] and set(view.dims[dim]) <= view.repeated:
        dims = [*view.dims[:dim], (Axis(last - first),) if last - first > 1 else (), *view.dims[dim + 1 :]]
        return view.arranged(dims)
    single = view.without(view.repeated)
    sizes = [*single.shape[:dim], last - first, *single.shape[dim + 1 :]]
    made = walk.make("slice", single, shape=sizes, dim=dim, start=first, stop=last)
    return _repeated_as(view, made, dim)


def _repeated_as(view: View, made: View, dim: int) -> View:
    """The slice `made` of a view along a dimension, with the view's repeated axes added again."""
    sizes: list[int] = []
    for place, part in enumerate(view.dims):
        kept = [axis.size for axis in part if axis not in view.repeated]
        sizes += [made.shape[dim]] if place == dim else kept
    apart = made.reshaped(sizes)
    left = iter(apart.dims)
    dims: list[tuple[Axis, ...]] = []
    for place, part in enumerate(view.dims):
        if place == dim:
            dims.append(next(left))
        else:
            dims.append(tuple(one for axis in part for one in ((axis,) if axis in view.repeated else next(left))))
    return apart.arranged(dims)


@handles("select.int")
def _selected(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.view(args[0])
    dim = args[1] % len(view.dims)
    place = args[2] % view.shape[dim]
    part = part_of(walk, view, dim, place, place + 1)
    return part.arranged([*part.dims[:dim], *part.dims[dim + 1 :]])


@handles("split.Tensor", "split_with_sizes.default", "chunk.default", "unbind.int")
def _split(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    view, name = walk.view(args[0]), str(walk.node.target)
    dim = args[2] if len(args) > 2 else named.get("dim", 0) if "unbind" not in name else (args[1:] or [0])[0]
    dim, size = dim % len(view.dims), view.shape[dim % len(view.dims)]
    if "unbind" in name:
        parts = [part_of(walk, view, dim, place, place + 1) for place in range(size)]
        return [part.arranged([*part.dims[:dim], *part.dims[dim + 1 :]]) for part in parts]
    length = -(-size // args[1]) if "chunk" in name else args[1]
    sizes = length if isinstance(length, list) else [min(length, size - first) for first in range(0, size, length)]
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [part_of(walk, view, dim, last - own, last) for own, last in zip(sizes, ends, strict=True)]


# ---------------------------------------------------------------------------------------- views


@handles("view.default", "_unsafe_view.default", "reshape.default")
def _view(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view, shape = walk.view(args[0]), list(args[1])
    if -1 in shape:
        shape[shape.index(-1)] = prod(view.shape) // -prod(shape)
    return walk.reshaped(view, shape)


@handles("broadcast_tensors.default")
def _broadcast(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    views = [walk.view(part) for part in args[0]]
    if len({view.shape for view in views}) > 1:
        raise Unsupported("tensors of several shapes")
    return views


@handles(
    "clone.default",
    "alias.default",
    "contiguous.default",
    "lift_fresh_copy.default",
)
def _same(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return args[0]


@handles("expand.default")
def _expanded(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return walk.view(args[0]).expanded(args[1])


@handles("permute.default")
def _permuted(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return walk.view(args[0]).permuted([place % len(args[1]) for place in args[1]])


@handles("transpose.int", "t.default")
def _transposed(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.view(args[0])
    first, second = (place % len(view.dims) for place in (args[1:3] if len(args) > 2 else (0, 1)))
    order = list(range(len(view.dims)))
    order[first], order[second] = order[second], order[first]
    return view.permuted(order)


@handles("unsqueeze.default")
def _unsqueezed(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.view(args[0])
    place = args[1] % (len(view.dims) + 1)
    return view.arranged([*view.dims[:place], (), *view.dims[place:]])


@handles("squeeze.dim", "squeeze.dims")
def _squeezed(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.view(args[0])
    gone = {place % len(view.dims) for place in (args[1] if isinstance(args[1], list) else [args[1]])}
    return view.arranged([dim for place, dim in enumerate(view.dims) if place not in gone or dim])


@handles("roll.default")
def _rolled(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    made, dims = walk.view(args[0]), list(args[2]) if len(args) > 2 else []
    if not dims:
        raise Unsupported("no dimension")
    for by, dim in zip(args[1], dims, strict=True):
        if by % made.shape[dim]:
            made = walk.make(
                "roll", walk.spread(made), shape=made.shape, by=by % made.shape[dim], dim=dim % len(made.dims)
            )
    return made


@handles("flip.default")
def _flipped(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    made = walk.spread(walk.view(args[0]))
    for dim in args[1]:
        made = walk.make("flip", made, shape=made.shape, dim=dim % len(made.dims))
    return made


@handles("cumsum.default")
def _summed_up(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.spread(walk.view(args[0]))
    return walk.make("cumsum", view, shape=view.shape, dim=args[1] % len(view.dims))


@handles("repeat.default")
def _repeated(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Tiled copies: a repeated axis before the axes that are copied."""
    view, counts = walk.view(args[0]), args[1]
    dims = [*[()] * (len(counts) - len(view.dims)), *view.dims]
    return view.arranged([((Axis(count),) if count > 1 else ()) + dim for count, dim in zip(counts, dims, strict=True)])


@handles("repeat_interleave.self_int")
def _copied_each(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view, count, dim = walk.view(args[0]), args[1], args[2] if len(args) > 2 else named.get("dim")
    if dim is None:
        raise Unsupported("no dimension")
    dims = list(view.dims)
    dims[dim % len(dims)] += (Axis(count),) if count > 1 else ()
    return view.arranged(dims)


@handles("glu.default")
def _gated(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, dim = filled(args, (None, -1))
    x = walk.view(x)
    place, half = dim % len(x.dims), x.shape[dim] // 2
    first, second = part_of(walk, x, place, 0, half), part_of(walk, x, place, half, 2 * half)
    return binary(walk, "mul", first, unary(walk, "sigmoid", second))


@handles("tril.default", "triu.default")
def _triangle(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    x, offset = filled(args, (None, 0))
    x = walk.view(x)
    ones = torch.ones(x.shape[-2:], dtype=torch.bool)
    hidden = ~(ones.tril(offset) if "tril" in str(walk.node.target) else ones.triu(offset))
    mask = walk.constant(hidden, "hidden", 2)
    return walk.make("masked_fill", walk.spread(x), mask, shape=x.shape, value=0)
