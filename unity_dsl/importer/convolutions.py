"""Handlers of convolutions, pools, interpolation and padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch.nn import functional as F

from .operators import binary, linear
from .tensor_parts import joined, part_of, reduced
from .translation import Entry, Prepared, Translation, Unsupported, filled, handles
from .views import Axis, View


@handles("conv2d.default", "conv1d.default", "conv2d.padding", "conv1d.padding")
def _convolution(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, weight, bias, stride, pad, dilation, groups = filled(args, (None, None, None, [1], [0], [1], 1))
    x, weight = walk.view(x), walk.view(weight)
    rank = len(x.dims) - 2
    stride, dilation = _alike(rank, stride, dilation)
    if isinstance(pad, str):
        pad = [d * (k - 1) // 2 * (pad == "same") for d, k in zip(dilation, weight.shape[2:], strict=True)]
    pad = _each(rank, pad)
    sizes = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, pad, dilation, strict=True)
    ]
    pads = {"pad": pad[0]} if rank == 1 else {"pad_h": pad[0], "pad_w": pad[1]}
    settings = {"stride": stride[0], **pads, "dilation": dilation[0], "groups": groups}
    usual = {"stride": 1, "pad": 0, "pad_h": 0, "pad_w": 0, "dilation": 1, "groups": 1}
    settings = {key: value for key, value in settings.items() if value != usual[key]}
    shape = (x.shape[0], weight.shape[0], *sizes)
    made = walk.make(f"conv{rank}d", walk.spread(x), weight, shape=shape, **settings)
    return made if bias is None else _with_channels(walk, made, walk.view(bias))


@handles("conv3d.default")
def _patches(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """A 3-D convolution over blocks that do not overlap, as a matrix product with each block."""
    x, weight, bias, stride, pad, dilation, groups = filled(args, (None, None, None, [1], [0], [1], 1))
    x, weight = walk.view(x), walk.view(weight)
    size, lengths = weight.shape[2:], x.shape[2:]
    if tuple(_each(3, stride)) != size or any(pad) or groups != 1 or {*dilation} != {1}:
        raise Unsupported(f"windows {list(size)} that overlap, or are padded or grouped")
    counts = [length // one for length, one in zip(lengths, size, strict=True)]
    for dim, (count, one) in enumerate(zip(counts, size, strict=True), start=2):
        x = part_of(walk, x, dim, 0, count * one)
    turned = _apart(walk, x, counts).permuted((0, 2, 4, 6, 1, 3, 5, 7))
    rows = walk.reshaped(turned, (x.shape[0], *counts, prod(weight.shape[1:])))
    made = linear(walk, rows, walk.reshaped(weight, (weight.shape[0], prod(weight.shape[1:]))), None)
    made = made.permuted((0, 4, 1, 2, 3))
    return made if bias is None else _with_channels(walk, made, walk.view(bias))


@handles("conv_transpose2d.input", "conv_transpose1d.default")
def _transposed_convolution(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, weight, bias, stride, pad, more, groups, dilation = filled(args, (None, None, None, [1], [0], [0], 1, [1]))
    x, weight = walk.view(x), walk.view(weight)
    rank = len(x.dims) - 2
    (stride, dilation), (pad, more) = _alike(rank, stride, dilation), (_each(rank, one) for one in (pad, more))
    sizes = [
        (size - 1) * stride[0] - 2 * p + dilation[0] * (k - 1) + m + 1
        for size, k, p, m in zip(x.shape[2:], weight.shape[2:], pad, more, strict=True)
    ]
    given = {"stride": stride[0], "pad": pad[0], "output_pad": more[0]}
    if rank == 2:
        given = {"stride": stride[0], "pad_h": pad[0], "pad_w": pad[1]}
        given |= {"output_pad_h": more[0], "output_pad_w": more[1]}
    given |= {"dilation": dilation[0], "groups": groups}
    settings = {key: value for key, value in given.items() if value != (1 if key in _ONES else 0)}
    shape = (x.shape[0], weight.shape[1] * groups, *sizes)
    made = walk.make(f"conv_transpose{rank}d", walk.spread(x), weight, shape=shape, **settings)
    return made if bias is None else _with_channels(walk, made, walk.view(bias))


def _each(rank: int, numbers: Sequence[int]) -> list[int]:
    """A number for each dimension; a single one holds for all."""
    return list(numbers) * (rank if len(numbers) == 1 else 1)


def _alike(rank: int, stride: Sequence[int], dilation: Sequence[int]) -> tuple[list[int], list[int]]:
    """Stride and dilation for each dimension. Raises Unsupported where dimensions differ."""
    strides, dilations = _each(rank, stride), _each(rank, dilation)
    if len({*strides}) > 1 or len({*dilations}) > 1:
        raise Unsupported(f"stride {strides}, dilation {dilations}")
    return strides, dilations


_ONES = {"stride", "dilation", "groups"}


def _with_channels(walk: Translation, made: View, bias: View) -> View:
    """The result of a convolution, with a bias added to each channel."""
    spread = bias.arranged((bias.dims[0], *[()] * (len(made.dims) - 2)))
    return walk.make("add", made, spread, shape=made.shape)


@handles("max_pool2d.default")
def _max_pool(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """A max pool. Windows that reach beyond the padding read copies of the last elements, which they contain anyway."""
    x, size, stride, pad, dilation, ceil = filled(args, (None, None, [], [0, 0], [1, 1], False))
    stride = stride or size
    if len({*size}) > 1 or len({*stride}) > 1 or {*dilation} != {1}:
        raise Unsupported(f"window {size}, stride {stride}, dilation {dilation}")
    x, pad = walk.view(x), list(pad) * (2 if len(pad) == 1 else 1)
    if ceil:
        made = F.max_pool2d(torch.zeros(1, 1, *x.shape[2:]), size, stride, pad, ceil_mode=True)
        for dim, end in zip((2, 3), _ends(made.shape, x, _each(2, size), _each(2, stride), pad), strict=True):
            x = joined(walk, _with_copies(walk, x, dim, 0, end), dim) if end > 0 else x
    sizes = [(length + 2 * p - size[0]) // stride[0] + 1 for length, p in zip(x.shape[2:], pad, strict=True)]
    pads = {"pad_h": pad[0], "pad_w": pad[1]} if any(pad) else {}
    return walk.make("max_pool2d", walk.spread(x), shape=(*x.shape[:2], *sizes), size=size[0], stride=stride[0], **pads)


@handles("max_pool1d.default", "avg_pool1d.default")
def _pool_of_a_sequence(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """A 1-D pool over windows that do not overlap."""
    assert walk.node is not None
    x, size, stride, pad = filled(args, (None, None, [], [0]))
    x = walk.view(x)
    if (stride or size) != size or any(pad) or x.shape[-1] % size[0]:
        raise Unsupported(f"window {size}, stride {stride}, padding {pad}")
    apart = walk.reshaped(x, (*x.shape[:-1], x.shape[-1] // size[0], size[0]))
    name = "reduce_max" if "max" in str(walk.node.target) else "reduce_mean"
    return reduced(walk, name, apart, [len(x.dims)], keep=False)


@handles("avg_pool2d.default")
def _average_pool(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """An average pool. A table rescales windows that reach beyond the padding, or whose padding is not counted."""
    x, size, stride, pad, ceil, counted, divisor = filled(args, (None, None, [], [0, 0], False, True, None))
    size, stride, pad = (list(one) * (2 if len(one) == 1 else 1) for one in (size, stride or size, pad))
    if len({*size}) > 1 or len({*stride}) > 1 or divisor:
        raise Unsupported(f"window {size}, stride {stride}, divisor {divisor}")
    x = walk.view(x)
    if not ceil and (counted or not any(pad)):
        return _averaged(walk, x, size[0], stride[0], pad)
    ones = walk.prepare("ones", torch.ones(1, 1, *x.shape[2:]), "torch.ones", [1, 1, *x.shape[2:]])
    means = F.avg_pool2d(ones.example, size, stride, pad, ceil, counted)
    ends = _ends(means.shape, x, size, stride, pad)
    for dim, end in zip((2, 3), ends, strict=True):
        if end > 0:
            shape = [length + end * (place == dim) for place, length in enumerate(x.shape)]
            x = walk.make("zero_pad", x, shape=shape, dim=dim, before=0, after=end)
    made = _averaged(walk, x, size[0], stride[0], pad)
    wider = [0, max(ends[1], 0), 0, max(ends[0], 0)]
    padded = walk.prepare("padded", F.pad(ones.example, wider), "torch.nn.functional.pad", ones, wider)
    wanted = walk.prepare("wanted", means, _AVERAGE, ones, size, stride, pad, ceil, counted)
    own = walk.prepare("averaged", F.avg_pool2d(padded.example, size, stride, pad), _AVERAGE, padded, size, stride, pad)
    scales = walk.prepare("window_scales", means / own.example, "torch.div", wanted, own)
    walk.origins[id(scales.example)] = scales
    return binary(walk, "mul", made, walk.constant(scales.example, "window_scales"))


def _ends(made: Sequence[int], x: View, size: list[int], stride: list[int], pad: list[int]) -> list[int]:
    """How far the last windows of a pool with a result of this shape reach beyond the padding."""
    return [
        (count - 1) * step + window - length - 2 * before
        for count, step, window, length, before in zip(made[2:], stride, size, x.shape[2:], pad, strict=True)
    ]


_AVERAGE = "torch.nn.functional.avg_pool2d"


def _averaged(walk: Translation, x: View, size: int, stride: int, pad: list[int]) -> View:
    sizes = [(length + 2 * p - size) // stride + 1 for length, p in zip(x.shape[2:], pad, strict=True)]
    pads = {"pad_h": pad[0], "pad_w": pad[1]} if any(pad) else {}
    return walk.make("avg_pool2d", walk.spread(x), shape=(*x.shape[:2], *sizes), size=size, stride=stride, **pads)


@handles("adaptive_avg_pool2d.default", "adaptive_avg_pool1d.default")
def _adaptive_pool(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Adaptive average pool: a global mean, means of windows that do not overlap, or a matrix product along each
    dimension.
    """
    x = walk.view(args[0])
    sizes = _wanted(x, args[1])
    if {*sizes} == {1} and len(sizes) == 2 and len(x.dims) == 4:
        made = walk.make("global_avg_pool2d", walk.spread(x), shape=x.shape[:2])
        return made.arranged((*made.dims, (), ()))
    if _overlap(x, sizes):
        return _along_each(walk, x, sizes, "adaptive", corners=None)
    return _of_windows(walk, "reduce_mean", x, sizes)


@handles("adaptive_max_pool1d.default", "adaptive_max_pool2d.default")
def _adaptive_max_pool(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Adaptive max pool over windows that do not overlap."""
    x = walk.view(args[0])
    sizes = _wanted(x, args[1])
    if _overlap(x, sizes):
        raise Unsupported(f"windows of {list(x.shape)} for {sizes}")
    return [_of_windows(walk, "reduce_max", x, sizes), None]


def _wanted(x: View, sizes: Sequence[int | None]) -> list[int]:
    """The output sizes of an adaptive pool, in which None keeps the size of a dimension."""
    return [own or old for own, old in zip(sizes, x.shape[-len(sizes) :], strict=True)]


def _overlap(x: View, counts: Sequence[int]) -> bool:
    """Whether adaptive windows overlap: a size is no multiple of its number of windows."""
    return any(length % count for length, count in zip(x.shape[-len(counts) :], counts, strict=True))


def _apart(walk: Translation, x: View, counts: Sequence[int]) -> View:
    """Splits each of the last dimensions into windows and the elements of a window."""
    lead, given = x.shape[: -len(counts)], x.shape[-len(counts) :]
    parts = [part for length, count in zip(given, counts, strict=True) for part in (count, length // count)]
    return walk.reshaped(x, (*lead, *parts))


def _of_windows(walk: Translation, name: str, x: View, counts: Sequence[int]) -> View:
    """A reduction of each window of the last dimensions."""
    lead = len(x.dims) - len(counts)
    places = [lead + 2 * place + 1 for place in range(len(counts))]
    return reduced(walk, name, _apart(walk, x, counts), places, keep=False)


@handles("upsample_nearest2d.vec", "upsample_nearest2d.default")
def _nearest(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Nearest-neighbour upsampling by whole factors: every element is repeated."""
    x = walk.view(args[0])
    sizes = args[1] or [int(length * factor) for length, factor in zip(x.shape[2:], args[2], strict=True)]
    if any(new % old for new, old in zip(sizes, x.shape[2:], strict=True)):
        raise Unsupported(f"size {sizes} of {list(x.shape[2:])}")
    copied = [(Axis(new // old),) if new > old else () for new, old in zip(sizes, x.shape[2:], strict=True)]
    return x.arranged([*x.dims[:2], *(dim + more for dim, more in zip(x.dims[2:], copied, strict=True))])


@handles("upsample_bilinear2d.vec", "upsample_bicubic2d.vec")
def _interpolated(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Interpolation, as a product with a matrix along each axis."""
    assert walk.node is not None
    x, corners = walk.view(args[0]), args[2]
    sizes = args[1] or [int(length * factor) for length, factor in zip(x.shape[2:], args[3], strict=True)]
    mode = "bicubic" if "bicubic" in str(walk.node.target) else "bilinear"
    if args[1] is None and any(
        int(size * factor) != size * factor for size, factor in zip(x.shape[2:], args[3], strict=True)
    ):
        raise Unsupported(f"factors {args[3]}")
    return _along_each(walk, x, sizes, mode, corners=corners)


def _along_each(walk: Translation, x: View, sizes: list[int], mode: str, *, corners: bool | None) -> View:
    """A product with a matrix along each of the last dimensions."""
    made, rank = walk.spread(x), len(x.dims)
    for dim, size in zip(range(rank - len(sizes), rank), sizes, strict=True):
        order = [place for place in range(rank) if place != dim] + [dim]
        matrix = walk.view(_matrix(walk, made.shape[dim], size, mode, corners=corners))
        turned = linear(walk, made.permuted(order), matrix, None)
        made = turned.permuted([order.index(place) for place in range(rank)])
    return made


def _matrix(walk: Translation, given: int, size: int, mode: str, *, corners: bool | None) -> Prepared:
    """The matrix [size, given] of interpolation or of means of windows, computed from unit vectors."""
    key = (given, size, mode, corners)
    if key not in walk.known:
        unit = Prepared("unit", torch.eye(given), "torch.eye", (given,), (("dtype", torch.float32),))
        if mode == "adaptive":
            found = F.adaptive_avg_pool1d(unit.example, size)
            made = Prepared("pooled", found, "torch.nn.functional.adaptive_avg_pool1d", (unit, size))
        else:
            flat = walk.prepare("unit", unit.example[:, None, :, None], "torch.reshape", unit, [given, 1, given, 1])
            named = (("size", (size, 1)), ("mode", mode), ("align_corners", corners))
            wide = F.interpolate(flat.example, size=(size, 1), mode=mode, align_corners=corners)
            whole_one = Prepared("resized", wide, "torch.nn.functional.interpolate", (flat,), named)
            made = walk.prepare("resized", wide[:, 0, :, 0], "torch.reshape", whole_one, [given, size])
        walk.known[key] = walk.prepare("resizing", made.example.T, "torch.permute", made, [1, 0])
    return walk.known[key]


@handles("constant_pad_nd.default", "pad.default", *(f"replication_pad{rank}d.default" for rank in (1, 2, 3)))
def _padded(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Pads the last dimensions with zeros or edge copies; negative padding cuts them."""
    assert walk.node is not None
    made, pads, mode, value = filled(args, (None, None, "constant", 0))
    mode, value = ("constant", mode) if not isinstance(mode, str) else (mode, value)
    is_copied = mode == "replicate" or "replication" in str(walk.node.target)
    if not is_copied and (mode != "constant" or value):
        raise Unsupported("another mode, or a number that is not 0")
    made = walk.view(made)
    for place, (before, after) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        dim = len(made.dims) - 1 - place
        made = part_of(walk, made, dim, max(-before, 0), made.shape[dim] - max(-after, 0))
        before, after = max(before, 0), max(after, 0)
        if is_copied:
            made = joined(walk, _with_copies(walk, made, dim, before, after), dim)
        elif before or after:
            shape = [*made.shape]
            shape[dim] += before + after
            made = walk.make("zero_pad", made, shape=shape, dim=dim, before=before, after=after)
    return made


def _with_copies(walk: Translation, view: View, dim: int, before: int, after: int) -> list[View]:
    """A view between copies of its first and of its last element along a dimension."""
    last = view.shape[dim] - 1
    ends = [part_of(walk, view, dim, 0, 1)] * before, [part_of(walk, view, dim, last, last + 1)] * after
    return [*ends[0], view, *ends[1]]


@handles("pixel_shuffle.default")
def _shuffled(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, factor = walk.view(args[0]), args[1]
    b, channels, height, width = x.shape
    apart = walk.reshaped(x, (b, channels // factor**2, factor, factor, height, width))
    turned = apart.permuted((0, 1, 4, 2, 5, 3))
    return walk.reshaped(turned, (b, channels // factor**2, height * factor, width * factor))
