"""Operators of torch that take tensors apart, put them together or look at them in another shape."""

from __future__ import annotations

from math import prod

from .translation import Entry, Translation, Unsupported, filled, handles
from .views import View

# ---------------------------------------------------------------------------------------- pools, parts


@handles("max_pool2d.default")
def _max_pool(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, size, stride, pad, dilation, ceil = filled(args, (None, None, [], [0, 0], [1, 1], False))
    stride = stride or size
    if len({*size}) > 1 or len({*stride}) > 1 or {*dilation} != {1} or ceil:
        raise Unsupported(f"window {size}, stride {stride}, dilation {dilation}, ceil_mode {ceil}")
    x, pad = walk.view(x), list(pad) * (2 if len(pad) == 1 else 1)
    sizes = [(length + 2 * p - size[0]) // stride[0] + 1 for length, p in zip(x.shape[2:], pad, strict=True)]
    pads = {"pad_h": pad[0], "pad_w": pad[1]} if any(pad) else {}
    return walk.make("max_pool2d", x, shape=(*x.shape[:2], *sizes), size=size[0], stride=stride[0], **pads)


@handles("adaptive_avg_pool2d.default")
def _global_pool(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    if {*args[1]} != {1}:
        raise Unsupported(f"size {args[1]}")
    x = walk.view(args[0])
    made = walk.make("global_avg_pool2d", x, shape=x.shape[:2])
    return made.arranged((*made.dims, (), ()))


@handles("mean.default", "sum.default", "mean.dim", "sum.dim_IntList")
def _reduced(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    view, keep = walk.whole_view(walk.view(args[0])), (args[2] if len(args) > 2 else named.get("keepdim", False))
    gone = {dim % len(view.dims) for dim in (args[1] if len(args) > 1 else range(len(view.dims)))}
    left = [place for place in range(len(view.dims)) if place not in gone]
    name = "reduce_mean" if "mean" in str(walk.node.target) else "reduce_sum"
    made = walk.make(name, view, shape=[view.shape[place] for place in left], kept=" ".join(map(str, left)))
    if not keep:
        return made
    dims = iter(made.dims)
    return made.arranged([() if place in gone else next(dims) for place in range(len(view.dims))])


@handles("cat.default")
def _concatenated(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    views = [walk.view(part) for part in args[0]]
    dim = (args[1] if len(args) > 1 else 0) % len(views[0].dims)
    made = views[-1]
    for other in reversed(views[:-1]):
        shared = {axis for part in other.dims[:-2] for axis in part}
        shape = [*made.shape]
        shape[dim] += other.shape[dim]
        if len(other.dims) > 2 and dim == len(other.dims) - 2 and other.repeated and other.repeated == shared:
            made = walk.make("prepend", walk.read_whole(made), other.arranged(other.dims[-2:]), shape=shape)
        else:
            made = walk.make("concat", walk.read_whole(other), walk.read_whole(made), shape=shape, dim=dim)
    return made


@handles("slice.Tensor")
def _sliced(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view, dim, start, stop, step = filled(args, (None, 0, 0, None, 1))
    view = walk.view(view)
    dim, size = dim % len(view.dims), view.shape[dim % len(view.dims)]
    first = min(max((start or 0) + size * ((start or 0) < 0), 0), size)
    last = size if stop is None else min(max(stop + size * (stop < 0), 0), size)
    if step != 1:
        raise Unsupported(f"step {step}")
    return part_of(walk, view, dim, first, last)


def part_of(walk: Translation, view: View, dim: int, first: int, last: int) -> View:
    if (first, last) == (0, view.shape[dim]):
        return view
    shape = [*view.shape[:dim], last - first, *view.shape[dim + 1 :]]
    return walk.make("slice", walk.read_whole(view), shape=shape, dim=dim, start=first, stop=last)


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
    "type_as.default",
    "clone.default",
    "alias.default",
    "contiguous.default",
    "_to_copy.default",
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
