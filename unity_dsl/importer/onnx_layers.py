"""ONNX operators of layers as torch calls: products, convolutions, pools, norms, losses, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .onnx_operators import OPERATORS, Values, as_tensor, operator

__all__ = ["OPERATORS"]


@operator("MatMul")
def _matmul(given: Values) -> Any:
    return torch.matmul(given.tensor(0), given.tensor(1))


@operator("Gemm")
def _gemm(given: Values) -> Any:
    a, b = given.tensor(0), given.tensor(1)
    a = a.T if given.get("transA", 0) else a
    alpha, beta = given.get("alpha", 1.0), given.get("beta", 1.0)
    if alpha == beta == 1 and (given[2] is None or given.tensor(2).dim() == 1):
        weight = b if given.get("transB", 0) else b.T
        return F.linear(a, weight, None if given[2] is None else given.tensor(2))
    made = alpha * torch.matmul(a, b.T if given.get("transB", 0) else b)
    return made if given[2] is None else made + beta * given.tensor(2)


@operator("Einsum")
def _einsum(given: Values) -> Any:
    return torch.einsum(given.get("equation"), *map(as_tensor, given.every()))


def _even(given: Values, size: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """The padding at both ends of each axis of windows. Raises ValueError where the ends differ."""
    rank, auto = len(size), given.get("auto_pad", "NOTSET")
    found = list(given.get("pads") or [0] * 2 * rank)
    if auto.startswith("SAME"):
        lengths = [-(-length // step) for length, step in zip(given[0].shape[2:], strides, strict=True)]
        ends = [
            max(0, (count - 1) * step + gap * (one - 1) + 1 - length)
            for count, step, gap, one, length in zip(lengths, strides, dilations, size, given[0].shape[2:], strict=True)
        ]
        found = [(end + (auto == "SAME_LOWER")) // 2 for end in ends]
        found += [end - before for end, before in zip(ends, found, strict=True)]
    if found[:rank] != found[rank:]:
        raise ValueError("pads that differ at both ends")
    return found[:rank]


def _each(given: Values, name: str, rank: int) -> list[int]:
    return list(given.get(name) or [1] * rank)


@operator("Conv")
def _convolution(given: Values) -> Any:
    weight = given.tensor(1)
    rank = weight.dim() - 2
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    strides, dilations = _each(given, "strides", rank), _each(given, "dilations", rank)
    pads: Any = "same" if _is_padded_by_torch(given, strides) else _even(given, weight.shape[2:], strides, dilations)
    bias = None if given[2] is None else given.tensor(2)
    given.read.add("kernel_shape")  # that of the weight
    return function(given.tensor(0), weight, bias, strides, pads, dilations, given.get("group", 1))


def _is_padded_by_torch(given: Values, strides: Sequence[int]) -> bool:
    """Whether torch's padding `same` applies, which puts an odd zero at the end."""
    return given.get("auto_pad", "NOTSET") == "SAME_UPPER" and {*strides} == {1}


@operator("ConvTranspose")
def _transposed_convolution(given: Values) -> Any:
    weight = given.tensor(1)
    rank = weight.dim() - 2
    function = {1: F.conv_transpose1d, 2: F.conv_transpose2d}[rank]
    strides, dilations = _each(given, "strides", rank), _each(given, "dilations", rank)
    more, bias = list(given.get("output_padding") or [0] * rank), None if given[2] is None else given.tensor(2)
    if given.get("auto_pad", "NOTSET") != "NOTSET":
        raise ValueError("pads by auto_pad")
    pads = _even(given, weight.shape[2:], strides, dilations)
    given.read.add("kernel_shape")
    return function(given.tensor(0), weight, bias, strides, pads, more, given.get("group", 1), dilations)


@operator("MaxPool")
def _max_pool(given: Values) -> Any:
    size = list(given.get("kernel_shape"))
    strides, dilations = _each(given, "strides", len(size)), _each(given, "dilations", len(size))
    pads, ceil = _even(given, size, strides, dilations), bool(given.get("ceil_mode", 0))
    function = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[len(size)]
    return function(given.tensor(0), size, strides, pads, dilations, ceil)


@operator("AveragePool")
def _average_pool(given: Values) -> Any:
    size = list(given.get("kernel_shape"))
    strides, ones = _each(given, "strides", len(size)), [1] * len(size)
    pads, ceil = _even(given, size, strides, ones), bool(given.get("ceil_mode", 0))
    function = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[len(size)]
    return function(given.tensor(0), size, strides, pads, ceil, bool(given.get("count_include_pad", 0)))


@operator("BatchNormalization")
def _batch_norm(given: Values) -> Any:
    x, gain, bias, mean, variance = (given.tensor(place) for place in range(5))
    momentum, eps = 1 - given.get("momentum", 0.9), given.get("epsilon", 1e-5)
    given.read.add("training_mode")  # the module's mode decides
    return F.batch_norm(x, mean, variance, gain, bias, given.training, momentum, eps)


def _check_axis(given: Values, gain: Tensor) -> None:
    """Raises ValueError where a norm covers other axes than its gain."""
    rank = given[0].dim()
    if tuple(gain.shape) != tuple(given[0].shape[given.get("axis", -1) % rank :]):
        raise ValueError(f"axis {given.get('axis', -1)} with a gain of {list(gain.shape)}")


@operator("LayerNormalization")
def _layer_norm(given: Values) -> Any:
    x, gain = given.tensor(0), given.tensor(1)
    bias = None if given[2] is None else given.tensor(2)
    _check_axis(given, gain)
    return F.layer_norm(x, gain.shape, gain, bias, given.get("epsilon", 1e-5))


@operator("RMSNormalization")
def _rms_norm(given: Values) -> Any:
    gain = given.tensor(1)
    _check_axis(given, gain)
    return F.rms_norm(given.tensor(0), gain.shape, gain, given.get("epsilon", 1e-5))


@operator("GroupNormalization")
def _group_norm(given: Values) -> Any:
    groups = given.get("num_groups")
    return F.group_norm(given.tensor(0), groups, given.tensor(1), given.tensor(2), given.get("epsilon", 1e-5))


@operator("InstanceNormalization")
def _instance_norm(given: Values) -> Any:
    x, gain, bias = (given.tensor(place) for place in range(3))
    return F.group_norm(x, x.shape[1], gain, bias, given.get("epsilon", 1e-5))


@operator("Dropout")
def _dropout(given: Values) -> Any:
    share = 0.5 if given[1] is None else float(as_tensor(given[1]))
    given.read.add("seed")
    trains = given[2] is not None
    return F.dropout(given.tensor(0), share, given.training and trains), None


@operator("SoftmaxCrossEntropyLoss")
def _loss(given: Values) -> Any:
    reduction, ignored = given.get("reduction", "mean"), given.get("ignore_index", -100)
    x, labels, weights = given.tensor(0), given.tensor(1).long(), None if given[2] is None else given.tensor(2)
    loss = F.cross_entropy(x, labels, weights, reduction=reduction, ignore_index=ignored)
    return loss, torch.log_softmax(x, 1)


@operator("Attention")
def _attention(given: Values) -> Any:
    q, k, v = (given.tensor(place) for place in range(3))
    mask = None if given[3] is None else given.tensor(3)
    causal = bool(given.get("is_causal", 0))
    if q.dim() != 4 or (mask is not None and (causal or mask.shape[-2:] != (q.shape[2], k.shape[2]))):
        raise ValueError("operands in three dimensions, or a mask besides the causal one or of another shape")
    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=given.get("scale"), enable_gqa=True)
