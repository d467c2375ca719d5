"""Cases of operators that move along an axis: convolutions, transposed convolutions and shifted positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from .operand_cases import Case, Random, any_shape, normal, sizes


def window(random: Random) -> tuple[int, int, dict[str, int]]:
    """A length, the width of a kernel that fits into it, and its stride, dilation and padding."""
    stride, dilation, pad, width = (int(random.integers(low, 4)) for low in (1, 1, 0, 1))
    reach = dilation * (width - 1) + 1
    length = max(1, reach - 2 * pad) + int(random.integers(0, 5))
    return length, width, {"stride": stride, "dilation": dilation, "pad": pad}


def conv1d(random: Random) -> Case:
    (n, c, o), (length, width, moves) = sizes(random, 3), window(random)
    inputs = [normal(random, n, c, length), normal(random, o, c, width)]
    return Case(inputs, lambda x, k: F.conv1d(x, k, None, moves["stride"], moves["pad"], moves["dilation"]), moves)


def conv2d(random: Random) -> Case:
    (n, c, o), (height, r, moves) = sizes(random, 3), window(random)
    stride, dilation, pad_h, pad_w = moves["stride"], moves["dilation"], moves["pad"], int(random.integers(0, 3))
    s = int(random.integers(1, 4))
    width = max(1, dilation * (s - 1) + 1 - 2 * pad_w) + int(random.integers(0, 5))
    inputs = [normal(random, n, c, height, width), normal(random, o, c, r, s)]
    attributes = {"stride": stride, "dilation": dilation, "pad_h": pad_h, "pad_w": pad_w}
    return Case(inputs, lambda x, k: F.conv2d(x, k, None, stride, (pad_h, pad_w), dilation), attributes)


def transposed(random: Random, axes: int) -> Case:
    """A transposed convolution of several groups; cutting off the ends leaves at least one position."""
    groups, c, o, n = (int(size) for size in random.integers(1, 4, 4))
    stride, dilation = (int(number) for number in random.integers(1, 4, 2))
    lengths, widths = sizes(random, axes), [int(size) for size in random.integers(1, 4, axes)]
    more = [int(random.integers(0, stride)) for _ in range(axes)]
    whole = [(length - 1) * stride + dilation * (r - 1) + 1 for length, r in zip(lengths, widths, strict=True)]
    pads = [int(random.integers(0, (size + 1) // 2)) for size in whole]
    inputs = [normal(random, n, groups * c, *lengths), normal(random, groups * c, o, *widths)]
    native = (F.conv_transpose1d, F.conv_transpose2d)[axes - 1]

    def reference(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return native(x, k, None, stride, pads, more, groups, dilation)

    names = ["pad", "output_pad"] if axes == 1 else ["pad_h", "pad_w", "output_pad_h", "output_pad_w"]
    moves = dict(zip(names, [*pads, *more], strict=True))
    return Case(inputs, reference, {"stride": stride, "dilation": dilation, "groups": groups, **moves})


def roll(random: Random) -> Case:
    shape = [*any_shape(random), *sizes(random, 1)]
    dim, by = int(random.integers(-len(shape), len(shape))), int(random.integers(-9, 10))
    return Case([normal(random, *shape)], lambda x: torch.roll(x, by, dim), {"by": by, "dim": dim})


def flip(random: Random) -> Case:
    shape = [*any_shape(random), *sizes(random, 1)]
    dim = int(random.integers(-len(shape), len(shape)))
    return Case([normal(random, *shape)], lambda x: torch.flip(x, [dim]), {"dim": dim})


def zero_pad(random: Random) -> Case:
    shape = [*any_shape(random), *sizes(random, 1)]
    dim, before, after = (int(random.integers(low, high)) for low, high in ((0, len(shape)), (0, 3), (0, 3)))
    pads = [*[0, 0] * (len(shape) - 1 - dim), before, after]
    settings = {"dim": dim, "before": before, "after": after}
    return Case([normal(random, *shape)], lambda x: F.pad(x, pads), settings)


def spread(random: Random) -> Case:
    shape, size = any_shape(random), int(random.integers(1, 5))
    return Case([normal(random, *shape)], lambda x: x.expand(size, *x.shape).clone(), {"size": size})


WINDOW_CASES: dict[str, Callable[[Random], Case]] = {
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv_transpose1d": partial(transposed, axes=1),
    "conv_transpose2d": partial(transposed, axes=2),
    "roll": roll,
    "flip": flip,
    "zero_pad": zero_pad,
    "spread": spread,
}
