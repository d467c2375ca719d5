"""Lowers sums of products at window positions, `[p + pad == h * stride + r] * x[h] * k[r]`, to torch's calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..equations.loop_nest import LookUp
from ..equations.term import affine
from .torch_term import Argument, Term, merge, permute, split, torch_call

MOST = 3
"""The largest number of axes of torch's transposed convolutions."""


@dataclass(frozen=True)
class _Window:
    """Position p of the result, of length `size`, gets image[h] * kernel[r]; p is `stride * h + dilation * r - pad`."""

    axis: str
    size: int
    image: str
    kernel: str
    stride: int
    dilation: int
    pad: int
    whole: int

    @property
    def beyond(self) -> int:
        """The number of positions that are cut off at the end; negative if zeros are added."""
        return self.whole - self.pad - self.size

    @property
    def more(self) -> int:
        """Positions added at the end once `pad` positions are cut off at both ends: torch's `output_padding`."""
        return self.pad - self.beyond

    @property
    def is_cut_by_torch(self) -> bool:
        return self.pad >= 0 and 0 <= self.more < max(self.stride, self.dilation)


def transposed_convolution(
    pieces: Sequence[Term], placed: Sequence[LookUp], free: Sequence[str], sizes: Mapping[str, int]
) -> Term | None:
    """The sum of the product of two tensors at window positions; None if it is no transposed convolution of torch.

    `free` are the other axes of the result. The larger tensor is the image. `sizes` are the sizes on a device; window
    axes are not divided.
    """
    if len(pieces) != 2 or not 0 < len(placed) <= MOST:
        return None
    for image, kernel in (pieces, pieces[::-1]):
        windows = [_window(found, image, kernel, sizes) for found in placed]
        known = [window for window in windows if window is not None]
        if len(known) == len(windows) and all(window.stride * window.dilation > 0 for window in known):
            larger = prod(sizes[one.image] for one in known) >= prod(sizes[one.kernel] for one in known)
            found = _call(image, kernel, known, free, sizes)
            if found is not None and (larger or image is pieces[1]):
                return found
    return None


def _window(found: LookUp, image: Term, kernel: Term, sizes: Mapping[str, int]) -> _Window | None:
    form = affine(found.term, sizes)
    if form is None or len(form.axes) != 2 or found.axis in (*image.axes, *kernel.axes):
        return None
    first, second = form.axes
    for height, row in ((first, second), (second, first)):
        if height in image.axes and row in kernel.axes and row not in image.axes and height not in kernel.axes:
            stride, dilation = form.coefficients[height], form.coefficients[row]
            whole = (sizes[height] - 1) * stride + (sizes[row] - 1) * dilation + 1
            return _Window(found.axis, sizes[found.axis], height, row, stride, dilation, -form.constant, whole)
    return None


def _call(
    image: Term, kernel: Term, windows: Sequence[_Window], free: Sequence[str], sizes: Mapping[str, int]
) -> Term | None:
    heights, rows = [one.image for one in windows], [one.kernel for one in windows]
    own = [axis for axis in image.axes if axis not in heights]
    others = [axis for axis in kernel.axes if axis not in rows]
    batch = [axis for axis in own if axis in free and axis not in others]
    groups = [axis for axis in own if axis in free and axis in others]
    inner = [axis for axis in own if axis not in free and axis in others]
    made = [axis for axis in others if axis not in own]
    if len(batch) + len(groups) + len(inner) != len(own) or not {*made} <= {*free} or {*heights, *rows} & {*free}:
        return None

    def lengths(*parts: Sequence[str]) -> list[list[int]]:
        return [[sizes[axis] for axis in part] for part in parts]

    x = merge(
        permute(image, [*batch, *groups, *inner, *heights]), lengths(batch, groups + inner, *([h] for h in heights))
    )
    k = merge(permute(kernel, [*groups, *inner, *made, *rows]), lengths(groups + inner, made, *([r] for r in rows)))
    by_torch = all(one.is_cut_by_torch for one in windows)
    padding = [one.pad if by_torch else 0 for one in windows]
    keywords: dict[str, Argument] = {"stride": _alike([one.stride for one in windows])}
    for name, numbers in (("padding", padding), ("output_padding", [one.more if by_torch else 0 for one in windows])):
        if any(numbers):
            keywords[name] = _alike(numbers)
    if (count := prod(sizes[axis] for axis in groups)) > 1:
        keywords["groups"] = count
    keywords["dilation"] = _alike([one.dilation for one in windows])
    places = [one.axis for one in windows]
    axes = (*batch, *groups, *made, *places)
    y = torch_call(f"F.conv_transpose{len(windows)}d", x, k, axes=[str(place) for place in range(len(places) + 2)])
    y = replace(y, keywords=tuple((name, value) for name, value in keywords.items() if value != _DEFAULTS.get(name)))
    if not by_torch:
        sides: list[Argument] = [-side for one in reversed(windows) for side in (one.pad, one.beyond)]
        y = torch_call("F.pad", y, sides, axes=y.axes)
    whole = [[one.size] for one in windows]
    return replace(split(y, [*lengths(batch, groups + made), *whole]), axes=axes)


_DEFAULTS: Mapping[str, int] = {"stride": 1, "dilation": 1}


def _alike(numbers: Sequence[int]) -> Argument:
    """One number for all axes if they are equal."""
    return numbers[0] if len({*numbers}) == 1 else list(numbers)
