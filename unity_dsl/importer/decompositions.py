"""Decompositions of torch operators into ones that have counterparts, where torch itself has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import accumulate, product
from math import inf, log, pi, prod
from typing import Any

import torch
from torch import Tensor

MOST_SLICES = 16
"""The most elements of a window whose mean is written out."""
MOST_PARTS = 32
"""The most elements along a dimension that are written out one by one."""
_ATEN: Any = torch.ops.aten


def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of square matrices: other elements are set to 0, then rows are summed."""
    x = x.movedim((dim1, dim2), (-2, -1))
    if offset or x.shape[-1] != x.shape[-2]:
        return NotImplemented
    beside = ~torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
    return x.masked_fill(beside, 0).sum(-1)


def _bilinear(first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    made = torch.einsum("...i,kij,...j->...k", first, weight, second)
    return made if bias is None else made + bias


def _mean_of_windows(
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int] = (),
    pad: Sequence[int] = (0,),
    ceil: bool = False,
    counted: bool = True,
    divisor: int | None = None,
) -> Any:
    """Means over small windows that are not padded: sums of slices."""
    dims = 3 if x.dim() == 5 else 2
    size, stride = ([*one] * (dims if len(one) == 1 else 1) for one in (size, stride or size))
    if any(pad) or ceil or divisor or x.dim() != dims + 2 or prod(size) > MOST_SLICES:
        return NotImplemented
    parts = []
    for starts in product(*map(range, size)):
        part = x
        for dim, (start, step, window) in enumerate(zip(starts, stride, size, strict=True), 2):
            part = _every(part, dim, start, (x.shape[dim] - window) // step + 1, step)
        parts.append(part)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total / len(parts)


def _conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    pad: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:
    """A 3-D convolution as a sum of 2-D convolutions of frames, one for each slice of the weight along its depth."""
    stride, pad, dilation = map(_thrice, (stride, pad, dilation))
    if pad[0]:
        x = torch.nn.functional.pad(x, (0, 0, 0, 0, pad[0], pad[0]))
    total: Tensor | None = None
    for number in range(weight.shape[2]):
        frames, count = _frames(x, weight.shape[2], number, stride[0], dilation[0])
        kernel = weight.select(2, number)
        made = _ATEN.conv2d(frames, kernel, None, stride[1:], pad[1:], dilation[1:], groups)
        total = made if total is None else total + made
    assert total is not None, "a kernel has a depth"
    total = total if bias is None else total + bias[:, None, None]
    return _stacked(total, x.shape[0], count)


def _max_pool3d(
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int] = (),
    pad: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil: bool = False,
) -> Any:
    """A 3-D max pool as the maximum of 2-D max pools of frames."""
    size, stride, pad, dilation = map(_thrice, (size, stride or size, pad, dilation))
    if ceil or dilation[0] > 1:
        return NotImplemented
    if pad[0]:  # a padded window has the edge frame, whose copies do not change the maximum
        x = torch.cat([*[x[:, :, :1]] * pad[0], x, *[x[:, :, -1:]] * pad[0]], 2)
    found: Tensor | None = None
    for number in range(size[0]):
        frames, count = _frames(x, size[0], number, stride[0], dilation[0])
        made = _ATEN.max_pool2d(frames, size[1:], stride[1:], pad[1:], dilation[1:])
        found = made if found is None else torch.maximum(found, made)
    assert found is not None, "a window has a depth"
    return _stacked(found, x.shape[0], count)


def _thrice(numbers: Sequence[int]) -> list[int]:
    return [*numbers] * (3 if len(numbers) == 1 else 1)


def _frames(x: Tensor, depth: int, number: int, step: int, dilation: int) -> tuple[Tensor, int]:
    """The frames at place `number` of all windows of this depth, as a batch, and their number for each example."""
    count = (x.shape[2] - dilation * (depth - 1) - 1) // step + 1
    return _every(x, 2, number * dilation, count, step).transpose(1, 2).flatten(0, 1), count


def _every(x: Tensor, dim: int, first: int, count: int, step: int) -> Tensor:
    """`count` elements along a dimension from `first` on, `step` apart."""
    end = first + (count - 1) * step + 1
    if step > 1:
        return x.index_select(dim, torch.arange(first, end, step, device=x.device))
    return x if not first and end == x.shape[dim] else x.narrow(dim, first, count)


def _stacked(frames: Tensor, examples: int, count: int) -> Tensor:
    return frames.reshape(examples, count, *frames.shape[1:]).transpose(1, 2)


def _conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    pad: Sequence[int] = (0,),
    more: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Any:
    """A transposed convolution whose windows do not overlap: each element makes a block of the result."""
    size = [*weight.shape[2:]]
    if _thrice(stride) != size or any(pad) or any(more) or groups > 1 or any(one > 1 for one in dilation):
        return NotImplemented
    made = torch.einsum("ncdhw,coijk->nodihjwk", x, weight)
    lengths = [length * window for length, window in zip(x.shape[2:], size, strict=True)]
    made = made.reshape(x.shape[0], weight.shape[1], *lengths)
    return made if bias is None else made + bias[:, None, None, None]


def _elements(x: Tensor, places: Sequence[Tensor | None]) -> Any:
    """Indexing along several adjacent dimensions, as indexing along one that merges them."""
    given = [dim for dim, one in enumerate(places) if one is not None]
    ids = [one for one in places if one is not None]
    beside = given == [*range(given[0], given[0] + len(given))]
    if len(given) < 2 or not beside or any(one.dtype == torch.bool for one in ids):
        return NotImplemented
    merged, lengths = ids[0] % x.shape[given[0]], [x.shape[dim] for dim in given]  # negative ones count from the end
    for one, length in zip(ids[1:], lengths[1:], strict=True):
        merged = merged * length + one % length
    return _ATEN.index(x.flatten(given[0], given[-1]), [*[None] * given[0], merged])


def _unfold(x: Tensor, dim: int, size: int, step: int) -> Any:
    """Windows along a dimension as a new last dimension: a stack of slices."""
    dim = dim % x.dim()
    if size > MOST_PARTS:
        return NotImplemented
    count = (x.shape[dim] - size) // step + 1
    return torch.stack([_every(x, dim, place, count, step) for place in range(size)], -1)


def _cdist(first: Tensor, second: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """Euclidean distances, whose gradient is 0 where the distance is 0."""
    if p != 2.0:
        return NotImplemented
    squares = ((first.unsqueeze(-2) - second.unsqueeze(-3)) ** 2).sum(-1)
    apart = squares > 0
    return torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)


def _parts(x: Tensor, dim: int) -> list[Tensor]:
    return [x.select(dim, place) for place in range(x.shape[dim])]


def _product(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    if x.shape[dim] > MOST_PARTS:
        return NotImplemented
    found = reduce(torch.mul, _parts(x, dim))
    return found.unsqueeze(dim) if keepdim else found


def _running_product(x: Tensor, dim: int) -> Any:
    if x.shape[dim] > MOST_PARTS:
        return NotImplemented
    return torch.stack([*accumulate(_parts(x, dim), torch.mul)], dim)


def _vector_norm(x: Tensor, order: float = 2.0, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    """A vector norm of an order other than 0, 1, 2 and -inf."""
    dims = [*range(x.dim())] if dim is None else [*dim]
    if order in (0.0, 1.0, 2.0, -inf):
        return NotImplemented
    if order == inf:
        return x.abs().amax(dims, keepdim)
    return ((x.abs() ** order).sum(dims, keepdim)) ** (1 / order)


def _norm(x: Tensor, order: float | None = None, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    """A vector norm; matrix norms, over two dimensions, are refused."""
    if order is not None and (x.dim() if dim is None else len(dim)) == 2:
        return NotImplemented
    return _ATEN.linalg_vector_norm(x, 2.0 if order is None else order, dim, keepdim)


def _chosen(condition: Tensor, first: float, second: float) -> Tensor:
    usual = torch.full_like(condition, second, dtype=torch.get_default_dtype())
    return usual.masked_fill(condition, first)


def _clamped(x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    x = x if least is None else torch.maximum(x, least)
    return x if most is None else torch.minimum(x, most)


def _largest(x: Tensor) -> Tensor:
    return x.amax([*range(x.dim())])


def _smallest(x: Tensor) -> Tensor:
    return x.amin([*range(x.dim())])


def _running_logsumexp(x: Tensor, dim: int) -> Tensor:
    """Cumulative logsumexp, as one logsumexp of all elements up to each, because their maxima differ."""
    last = x.movedim(dim, -1)
    later = torch.ones(x.shape[dim], x.shape[dim], dtype=torch.bool).triu(1)
    every = last.unsqueeze(-2) + torch.zeros(later.shape).masked_fill(later, -inf)
    return every.logsumexp(-1).movedim(-1, dim)


def _whole_part(x: Tensor) -> Tensor:
    return torch.where(x < 0, -torch.floor(-x), torch.floor(x))


def _quotient(x: Tensor, other: Tensor | float, *, rounding_mode: str | None) -> Tensor:
    found = x / other
    return found if rounding_mode is None else torch.floor(found) if rounding_mode == "floor" else _whole_part(found)


def _remainder(x: Tensor, other: Tensor | float, *, rounding_mode: str = "floor") -> Tensor:
    return x - _quotient(x, other, rounding_mode=rounding_mode) * other


def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0) / alpha))


def _asinh(x: Tensor) -> Tensor:
    """Asinh by way of the absolute value, where no digits cancel."""
    size = x.abs()
    return torch.sign(x) * torch.log1p(size + size * size / (1 + torch.sqrt(size * size + 1)))


def _variance_and_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = [*range(x.dim())] if dim is None else [*dim]
    return x.var(dims, correction=correction, keepdim=keepdim), x.mean(dims, keepdim=keepdim)


def _batch_norm_alone(
    x: Tensor, gain: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A batch norm without running statistics, with the statistics that it saves for backward."""
    dims, shape = [place for place in range(x.dim()) if place != 1], [-1, *[1] * (x.dim() - 2)]
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    scale = torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    made = centred * scale
    made = made if gain is None else made * gain.reshape(shape)
    made = made if bias is None else made + bias.reshape(shape)
    return made, mean.flatten(), scale.flatten()


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """`torch.nn.functional.gaussian_nll_loss` for variances that are not negative. The gradient ignores their clamping
    to `eps`.
    """
    variance = torch.as_tensor(var, dtype=input.dtype, device=input.device)
    if variance.dim() and variance.dim() == input.dim() - 1:
        variance = variance.unsqueeze(-1)
    variance = variance + (variance.clamp(min=eps) - variance).detach()
    loss = 0.5 * (variance.log() + (input - target) ** 2 / variance) + (0.5 * log(2 * pi) if full else 0.0)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


OWN: Mapping[Any, Callable[..., Any]] = {
    _ATEN.diagonal.default: _diagonal,
    _ATEN.bilinear.default: _bilinear,
    _ATEN.avg_pool2d.default: _mean_of_windows,
    _ATEN.avg_pool3d.default: _mean_of_windows,
    _ATEN.conv3d.default: _conv3d,
    _ATEN.conv_transpose3d.input: _conv_transpose3d,
    _ATEN.max_pool3d.default: _max_pool3d,
    _ATEN.index.Tensor: _elements,
    _ATEN.unfold.default: _unfold,
    _ATEN.cdist.default: _cdist,
    _ATEN.prod.dim_int: _product,
    _ATEN.prod.default: lambda x: _product(x.flatten(), 0),
    _ATEN.cumprod.default: _running_product,
    _ATEN.linalg_vector_norm.default: _vector_norm,
    _ATEN.linalg_norm.default: _norm,
    _ATEN.where.Scalar: _chosen,
    _ATEN.clamp.Tensor: _clamped,
    _ATEN.max.default: _largest,
    _ATEN.min.default: _smallest,
    _ATEN.logcumsumexp.default: _running_logsumexp,
    _ATEN.ceil.default: lambda x: -torch.floor(-x),
    _ATEN.trunc.default: _whole_part,
    _ATEN.frac.default: lambda x: x - _whole_part(x),
    _ATEN.remainder.Scalar: _remainder,
    _ATEN.remainder.Tensor: _remainder,
    _ATEN.fmod.Scalar: partial(_remainder, rounding_mode="trunc"),
    _ATEN.fmod.Tensor: partial(_remainder, rounding_mode="trunc"),
    _ATEN.floor_divide.default: partial(_quotient, rounding_mode="floor"),
    _ATEN.div.Tensor_mode: _quotient,
    _ATEN.div.Scalar_mode: _quotient,
    _ATEN.erfc.default: lambda x: 1 - torch.erf(x),
    _ATEN.threshold.default: lambda x, least, usual: torch.where(x > least, x, usual),
    _ATEN.celu.default: _celu,
    _ATEN.asinh.default: _asinh,
    _ATEN.tan.default: lambda x: torch.sin(x) / torch.cos(x),
    _ATEN.var_mean.correction: _variance_and_mean,
    _ATEN.var_mean.dim: lambda x, dim, unbiased=True, keepdim=False: _variance_and_mean(
        x, dim, correction=int(unbiased), keepdim=keepdim
    ),
    _ATEN._native_batch_norm_legit.no_stats: _batch_norm_alone,
}
"""Decompositions by operator; one returns NotImplemented where it does not apply."""
